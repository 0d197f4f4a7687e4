"""The experiment svm-rank: measure, claims, figure."""
