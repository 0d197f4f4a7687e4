"""The experiment tensor-trick: measure, claims, figure."""
