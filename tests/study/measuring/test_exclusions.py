"""Counts of kept and excluded seeds, and of kept ones whose solution is not unique, or not known to be."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from jaxattn.study.claims import DOUBTED
from jaxattn.study.measuring import exclusions
from jaxattn.svm import Unique

YES, NO, UNKNOWN = Unique


def test_a_seed_counts_for_the_first_reason_that_applies():
    kept = np.array([True, False, False, False])
    diverged, infeasible = np.array([False, True, False, False]), np.array([True, True, True, False])
    counts = exclusions.count(kept, diverged=diverged, infeasible=infeasible)
    assert counts == {"attempted": 4, "kept": 1, "diverged": 1, "infeasible": 1, "unsolved": 1}


def test_a_kept_seed_is_counted_once_and_one_that_is_excluded_not_at_all():
    solutions = [
        SimpleNamespace(unique=np.array(codes))
        for codes in ([YES, YES, NO, NO, UNKNOWN, NO], [YES, UNKNOWN, YES, UNKNOWN, UNKNOWN, NO])
    ]
    kept = np.array([True, True, True, True, True, False])
    found = exclusions.doubted(cast(Any, solutions), kept)
    assert found == {"not_unique": 2, "uniqueness_unknown": 2}
    assert set(found) == set(DOUBTED)
    assert exclusions.doubted(cast(Any, solutions), np.zeros(6, bool)) == dict.fromkeys(DOUBTED, 0)
