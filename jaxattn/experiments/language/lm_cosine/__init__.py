"""Does the cosine of W with the soft-margin solution of its text rise towards 1 during training?"""
