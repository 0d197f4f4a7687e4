"""Gradient flow on K and Q: which Att-SVM it obeys, and whether the start has to be aligned with the data."""
