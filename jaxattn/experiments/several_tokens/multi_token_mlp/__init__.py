"""The experiment multi-token-mlp: measure, claims, figure."""
