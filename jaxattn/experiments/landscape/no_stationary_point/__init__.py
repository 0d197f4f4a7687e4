"""Can the gradient turn away from the SVM solution of the optimal tokens, or vanish: with equal scores and without?"""
