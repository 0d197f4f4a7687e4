"""The experiment trajectories: measure, claims, figure."""
