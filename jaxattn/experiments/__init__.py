"""The experiments, a folder each below its topic: measure, claims, figure."""
