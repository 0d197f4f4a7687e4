"""The solvers of the max-margin problems, one a file, and the steps that several of them share."""
