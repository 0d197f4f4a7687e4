"""The experiment no-stationary-point: measure, claims, figure."""
