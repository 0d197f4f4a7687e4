"""The experiment low-rank-lemma: measure, claims, figure."""
