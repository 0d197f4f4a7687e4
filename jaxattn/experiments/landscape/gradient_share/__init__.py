"""The experiment gradient-share: measure, claims, figure."""
