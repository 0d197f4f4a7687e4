"""The lemmas on the way to the second paper's theorems: its gradient, the slope of its loss, its basic bounds."""
