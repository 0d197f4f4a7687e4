"""The experiment local-directions: measure, claims, figure."""
