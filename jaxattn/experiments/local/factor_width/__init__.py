"""The experiment factor-width: measure, claims, figure."""
