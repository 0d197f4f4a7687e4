"""The max-margin problems themselves: feasibility, rank, regularization paths."""
