"""The experiment regularization-path: measure, claims, figure."""
