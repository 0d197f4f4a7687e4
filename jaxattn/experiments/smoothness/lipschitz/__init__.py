"""The experiment lipschitz: measure, claims, figure."""
