"""Solvers of max-margin problems, one per module, and the steps that several of them share."""
