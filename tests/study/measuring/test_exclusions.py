"""Counts of kept and excluded seeds."""

import numpy as np

from jaxattn.study.measuring import exclusions


def test_a_seed_counts_for_the_first_reason_that_applies():
    kept = np.array([True, False, False, False])
    diverged, infeasible = np.array([False, True, False, False]), np.array([True, True, True, False])
    counts = exclusions.count(kept, diverged=diverged, infeasible=infeasible)
    assert counts == {"attempted": 4, "kept": 1, "diverged": 1, "infeasible": 1, "unsolved": 1}
