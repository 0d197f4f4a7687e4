"""The experiment gradient-sparsity: measure, claims, figure."""
