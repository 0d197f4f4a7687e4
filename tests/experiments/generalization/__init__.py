"""Experiments on new inputs, by their folders."""
