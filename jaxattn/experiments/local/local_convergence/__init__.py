"""The experiment local-convergence: measure, claims, figure."""
