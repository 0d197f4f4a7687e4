"""Does the norm of W diverge under plain gradient descent, and does its direction converge to the SVM solution?"""
