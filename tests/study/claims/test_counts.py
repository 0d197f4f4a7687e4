"""Counts of seeds, and when there are too few of them, or of steps, to decide."""

import json

import numpy as np
import xarray

from jaxattn.study.claims import EXCLUDED, counts_of, too_few, total

COUNTS = {"attempted": 11, "kept": 8, "diverged": 1, "infeasible": 2, "unsolved": 0}


def test_counts_are_those_of_the_comparison_as_integers_that_json_can_write():
    one = xarray.Dataset(attrs={name: np.int64(count) for name, count in COUNTS.items()} | {"run": "W"})
    assert json.loads(json.dumps(counts_of({"W": one}))) == {"W": COUNTS}


def test_counts_of_several_runs_add_up():
    runs = {run: xarray.Dataset(attrs=COUNTS) for run in ("W", "KQ")}
    assert total(runs) == {name: 2 * count for name, count in COUNTS.items()}
    assert total({}) == {}
    assert set(COUNTS) - {"attempted", "kept"} <= set(EXCLUDED)


def test_the_least_numbers_are_enough():
    assert too_few(20) == ""
    assert too_few(19) == "19 kept seeds are too few to decide; at least 20 are needed."
    assert too_few(8, 8) == ""
