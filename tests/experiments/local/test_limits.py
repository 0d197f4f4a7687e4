"""The second stage of long runs: their distance from each solution."""

import functools

import numpy as np
import pytest

from jaxattn import data, descent, initial
from jaxattn.experiments.local import limits
from jaxattn.study.claims import not_a_number
from jaxattn.study.settings import schedule
from tests.instances import T, d, n
from tests.recorded import recorded


def short(path, m, rule):
    """The record of 50 steps on factors of m columns."""
    law, start = functools.partial(data.sphere, n=n, T=T, d=d), functools.partial(initial.factored, m=m)
    size = {"seeds": 5, "steps": 50, "snapshots": schedule.Logarithmically(2), "record_every": 10}
    return recorded(path, law, start, rule, **size)


@pytest.mark.parametrize("m", [d, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_is_held_against_the_solutions_of_its_width(tmp_path, m):
    record = short(tmp_path, m, descent.jointly_normalized_gd(0.1, penalty=1e-12))
    one = limits.measure(record)
    assert one["snapshot"].values.tolist() == [1, 3, 7, 19, 50]
    assert one["norm"].values.tolist()[:2] == ["frobenius", "nuclear"]
    assert one.sizes["norm"] == (3 if m < d else 2)
    first = int(one["seed"][0])
    K, Q = record["K"].values[first], record["Q"].values[first]
    np.testing.assert_allclose(one["size"][0, -1], np.linalg.norm(K @ Q.T))
    np.testing.assert_allclose(one["balance"][0, -1], np.linalg.norm(K) / np.linalg.norm(Q))
    assert ("margin_ratio" in one) == (m == d)
    assert np.all((one["off"] > 0) & (one["off"] < 2))
    assert not_a_number({"KQ": one}) == ""
