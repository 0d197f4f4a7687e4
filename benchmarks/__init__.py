"""Measurements of the numbers that the README quotes, one file per subject; `make bench` runs them all."""
