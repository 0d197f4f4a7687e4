"""The experiment multi-token-lambda: measure, claims, figure."""
