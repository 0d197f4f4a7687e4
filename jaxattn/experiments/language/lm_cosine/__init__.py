"""The experiment lm-cosine: measure, claims, figure."""
