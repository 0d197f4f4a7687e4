"""The experiment global-probability: measure, claims, figure."""
