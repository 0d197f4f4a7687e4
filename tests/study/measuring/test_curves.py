"""Curves of a compared run: means and intervals at its snapshots, and how they are read."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.study.measuring.curves import at_steps, curves, named

STEPS, NORMS = np.array([2, 4, 6]), ["frobenius", "nuclear"]
RANDOM = np.random.default_rng(0)
CORRELATION, PROBABILITY = RANDOM.uniform(size=(9, 2, 3)), RANDOM.uniform(size=(9, 6))


@pytest.fixture(scope="module")
def summary():
    variables = {
        "correlation": (("seed", "norm", "snapshot"), CORRELATION),
        "probability": (("seed", "step"), PROBABILITY),
    }
    comparison = xarray.Dataset(variables, {"norm": NORMS, "snapshot": STEPS}, {"kept": 9})
    return curves(comparison, jax.random.key(0))


def test_curves_are_means_over_seeds_inside_their_intervals(summary):
    np.testing.assert_allclose(summary["correlation"], CORRELATION.mean(axis=0))
    for name in ("correlation", "probability"):
        assert np.all((summary[f"{name}_low"] < summary[name]) & (summary[name] < summary[f"{name}_high"]))
    np.testing.assert_allclose(summary["correlation_error"], CORRELATION.std(axis=0, ddof=1) / 3)
    assert summary.attrs == {"kept": 9}


def test_the_probability_is_the_one_read_before_the_update_that_a_snapshot_follows(summary):
    np.testing.assert_allclose(summary["probability"], PROBABILITY.mean(axis=0)[[1, 3, 5]])


def test_estimates_are_read_at_the_steps_that_there_are_and_named(summary):
    read = at_steps(summary, "correlation", (1, 6, 4), norm="nuclear")
    assert read["steps"].tolist() == [6, 4]
    np.testing.assert_allclose(read[""], CORRELATION.mean(axis=0)[1, [2, 1]])
    np.testing.assert_allclose(read["_low"], summary["correlation_low"].values[1, [2, 1]])
    numbers = named({"nuclear": read, "W": at_steps(summary, "probability", (2,))})
    assert list(numbers) == ["nuclear at step 6", "nuclear at step 4", "W at step 2"]
    assert all(one.low < one.mean < one.high for one in numbers.values())
    assert at_steps(summary, "probability", (5,))["steps"].size == 0
