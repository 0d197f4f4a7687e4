"""Where does the regularization path of (K, Q) go with fewer columns than the solution's rank, and does descent too?"""
