"""The experiment feasibility: measure, claims, figure."""
