"""The two stages of an experiment (train, compare), and what each figure's claims are."""
