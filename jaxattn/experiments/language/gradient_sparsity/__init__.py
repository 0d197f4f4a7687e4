"""How few pairs of a prefix and a word carry the gradient during training, and are they support vectors?"""
