"""Can the gradient point away from the SVM solution of the optimal tokens, or vanish, with equal scores and without?"""
