"""Which max-margin problems do the joint regularization paths of the prompt p and the head's v obey?"""
