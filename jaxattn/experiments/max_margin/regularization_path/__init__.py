"""Which max-margin solutions do the regularization paths of W and of (K, Q) tend to?"""
