"""Where do the regularization path of (K, Q) and descent go with fewer columns than the solution's rank?"""
