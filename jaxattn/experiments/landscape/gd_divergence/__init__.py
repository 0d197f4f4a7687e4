"""The experiment gd-divergence: measure, claims, figure."""
