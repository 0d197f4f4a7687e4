"""Gradient flow on K and Q: which Att-SVM it obeys, and whether the start must be aligned with the data."""
