"""Does the direction of training W depend on the loss?"""
