"""Kept seeds whose solution is not unique, or not known to be, are counted once."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from jaxattn.study.claims import DOUBTED
from jaxattn.study.measuring.doubted import doubted
from jaxattn.svm import Unique

YES, NO, UNKNOWN = Unique


def test_a_kept_seed_is_counted_once_and_one_that_is_excluded_not_at_all():
    solutions = [
        SimpleNamespace(unique=np.array(codes))
        for codes in ([YES, YES, NO, NO, UNKNOWN, NO], [YES, UNKNOWN, YES, UNKNOWN, UNKNOWN, NO])
    ]
    kept = np.array([True, True, True, True, True, False])
    found = doubted(cast(Any, solutions), kept)
    assert found == {"not_unique": 2, "uniqueness_unknown": 2}
    assert set(found) == set(DOUBTED)
    assert doubted(cast(Any, solutions), np.zeros(6, bool)) == dict.fromkeys(DOUBTED, 0)
