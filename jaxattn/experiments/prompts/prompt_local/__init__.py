"""Which directions attract a prompt, from a grid of starts in the plane?"""
