"""The lengths of a run's paths, and whether its weights still grow: the exponent over the second half of its steps."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.study.measuring.growth import AT_REST, growth, lengths

KEY = jax.random.key(0)
STEPS = np.array([20, 500, 980, 1000, 1500, 2000])


def paths(length, steps=STEPS):
    """A run of twelve seeds whose paths have these lengths at its steps, (snapshot,) or (seed, snapshot)."""
    directions = np.random.default_rng(0).normal(size=(12, 1, 3, 4))
    directions /= np.linalg.norm(directions, axis=(2, 3), keepdims=True)
    path = np.broadcast_to(length, (12, len(steps)))[:, :, None, None] * directions
    return xarray.Dataset({"path": (("seed", "snapshot", "input", "feature"), path)}, {"snapshot": steps})


def run(length, steps=STEPS):
    """The lengths of these paths."""
    return lengths(paths(length, steps))


def test_the_lengths_are_those_of_the_paths_in_whatever_order_their_axes_are():
    length = np.arange(72.0).reshape(12, 6)
    one = paths(length)
    for found in (lengths(one), lengths(one.transpose("feature", "snapshot", "seed", "input"))):
        assert found.dims == ("seed", "snapshot")
        np.testing.assert_array_equal(found["snapshot"], STEPS)
        np.testing.assert_allclose(found, length, rtol=1e-14)


def test_paths_that_are_not_finite_are_refused():
    length = np.ones((12, 6))
    length[3, -1] = np.nan
    assert np.isnan(run(length)).sum() == 1
    with pytest.raises(ValueError, match="bootstrap: expected finite values, found 1 others"):
        growth(run(length), KEY)


@pytest.mark.parametrize("power", [2.0, 1.0, 0.1, 0.0, -0.3])
def test_the_exponent_is_that_of_the_power(power):
    found = growth(run(7 * STEPS**power), KEY)
    assert (int(found["since"]), int(found["until"])) == (1000, 2000)
    np.testing.assert_allclose([found[name] for name in ("growth", "growth_low", "growth_high")], power, atol=1e-12)


def test_the_slowest_growth_of_descent_is_more_than_rest():
    assert float(growth(run(np.log(STEPS)), KEY)["growth_low"]) > 2 * AT_REST
    assert float(growth(run(100 + np.sin(STEPS)), KEY)["growth_high"]) < AT_REST


def test_the_mean_is_over_seeds_with_its_interval():
    powers = np.linspace(0.5, 1.5, 12)
    found = growth(run(STEPS ** powers[:, None]), KEY)
    np.testing.assert_allclose(found["growth"], 1.0)
    assert 0.7 < float(found["growth_low"]) < 0.9 < 1.1 < float(found["growth_high"]) < 1.3


def test_weights_that_stay_at_zero_do_not_grow_and_one_snapshot_shows_nothing():
    assert float(growth(run(0.0 * STEPS), KEY)["growth"]) == 0
    assert np.isnan(growth(run([1.0], np.array([100])), KEY)["growth"])
