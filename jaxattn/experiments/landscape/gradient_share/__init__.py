"""How fast does the part of the gradient on tokens that are not support vectors vanish, by their slack?"""
