"""The lemmas behind the theorems of the second paper: its gradient, the slope of its loss, its basic bounds."""
