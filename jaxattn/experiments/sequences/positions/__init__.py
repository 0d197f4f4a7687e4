"""The experiment positions: measure, claims, figure."""
