"""The experiment convergence-types: measure, claims, figure."""
