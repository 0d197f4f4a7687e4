"""The experiment lm-margins: measure, claims, figure."""
