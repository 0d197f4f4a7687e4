"""Counts of seeds, and when there are too few of them, or of steps, to decide."""

import json

import numpy as np
import xarray

from jaxattn.study.claims import EXCLUDED, counts_of, too_few, too_little, too_short, total

COUNTS = {"attempted": 11, "kept": 8, "diverged": 1, "infeasible": 2, "unsolved": 0}


def test_counts_are_those_of_the_comparison_as_integers_that_json_can_write():
    one = xarray.Dataset(attrs={name: np.int64(count) for name, count in COUNTS.items()} | {"run": "W"})
    assert json.loads(json.dumps(counts_of({"W": one}))) == {"W": COUNTS}


def test_counts_of_several_runs_add_up():
    runs = {run: xarray.Dataset(attrs=COUNTS) for run in ("W", "KQ")}
    assert total(runs) == {name: 2 * count for name, count in COUNTS.items()}
    assert total({}) == {}
    assert set(COUNTS) - {"attempted", "kept"} <= set(EXCLUDED)


def test_a_run_without_the_published_steps_or_with_few_seeds_decides_nothing():
    one = xarray.Dataset({"snapshot": [300, 700, 1900]}, attrs=COUNTS)
    assert too_little(one) == ""
    assert "[200, 1000]" in too_little(one, [200, 700, 1000])
    assert "7 kept seeds" in too_little(one.assign_attrs(kept=7))
    # What is named first is the length of the run.
    assert "300 steps is too short" in too_little(one.isel(snapshot=[0]).assign_attrs(kept=7), [200])


def test_the_least_numbers_are_enough():
    assert too_short(1000) == ""
    assert "999 steps is too short" in too_short(999)
    assert too_few(20) == ""
    assert too_few(19) == "19 kept seeds are too few to decide; at least 20 are needed."
    assert too_few(8, 8) == ""
