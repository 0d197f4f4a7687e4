"""How fast does the part of the gradient on tokens that are no support vectors vanish, against their slack?"""
