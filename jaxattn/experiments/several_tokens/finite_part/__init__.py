"""The experiment finite-part: measure, claims, figure."""
