"""How few pairs of a prefix and a word carry the gradient while a text is learnt, and are they support vectors?"""
