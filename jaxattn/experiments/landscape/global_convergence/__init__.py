"""The experiment global-convergence: measure, claims, figure."""
