"""The experiment softmax-vs-linear: measure, claims, figure."""
