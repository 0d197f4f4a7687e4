"""The experiment lm-theorems: measure, claims, figure."""
