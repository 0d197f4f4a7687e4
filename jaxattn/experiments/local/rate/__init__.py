"""The experiment rate: measure, claims, figure."""
