"""Estimates as values: each on numbers with a known answer, and the keys that they draw with."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.statistics import bootstrap, proportion
from jaxattn.study.estimates import estimated, exact, geometric_mean, mean, number, power_law, quantiles, share

KEY = jax.random.key(3)
SEEDS, STEPS = 30, np.array([1, 10, 100, 1000])
VALUES = np.random.default_rng(0).lognormal(size=(SEEDS, len(STEPS)))
CURVES = xarray.DataArray(VALUES, {"snapshot": STEPS}, ("seed", "snapshot"))


def of(key=KEY, **estimators):
    return estimated(xarray.Dataset(attrs={"run": "W"}), key, **estimators)


def assert_parts(found, name, expected):
    for part, suffix in (("mean", ""), ("low", "_low"), ("high", "_high")):
        np.testing.assert_array_equal(found[name + suffix], getattr(expected, part))


def test_a_mean_is_that_of_the_bootstrap_with_the_axes_of_one_seed():
    found = of(off=mean(CURVES))
    assert_parts(found, "off", bootstrap(VALUES, jax.random.fold_in(KEY, 0)))
    assert found["off_error"].dims == ("snapshot",)
    np.testing.assert_array_equal(found["snapshot"], STEPS)
    assert found.attrs == {"run": "W"}


def test_random_estimates_have_keys_of_their_own_in_their_order():
    found = of(a=mean(CURVES), hits=share(CURVES > 1), b=mean(CURVES.transpose("snapshot", "seed")))
    assert_parts(found, "b", bootstrap(VALUES, jax.random.split(KEY, 2)[1]))
    assert (found["a_low"] != found["b_low"]).any()


def test_a_geometric_mean_is_the_mean_of_logarithms():
    found, expected = of(off=geometric_mean(CURVES)), bootstrap(np.log10(VALUES), jax.random.fold_in(KEY, 0))
    np.testing.assert_array_equal(found["off_high"], 10**expected.high)
    np.testing.assert_allclose(found["off"], np.exp(np.log(VALUES).mean(axis=0)))


def test_a_share_has_the_interval_of_wilson_and_quantiles_are_over_seeds():
    assert_parts(of(near=share(CURVES > 1)), "near", proportion(VALUES > 1))
    np.testing.assert_array_equal(of(off=quantiles(CURVES, 10, 50))["off_50"], np.median(VALUES, axis=0))


def test_the_exponent_of_a_power_law_is_fitted_from_a_step_on():
    curves = xarray.DataArray(2.0 * STEPS**-1.5 * np.ones((SEEDS, 1)), {"snapshot": STEPS}, ("seed", "snapshot"))
    curves = xarray.where(curves["snapshot"] < 10, 7.0, curves).transpose("seed", "snapshot")
    assert float(of(p=power_law(curves, since=10))["p"]) == pytest.approx(-1.5)
    assert np.isnan(of(p=power_law(curves, since=10, least=1001))["p"])


def test_a_number_is_read_with_its_interval_and_is_exact_without_one():
    found = of(off=mean(CURVES), count=exact(3))
    assert number(found, "off", at=-1).low == float(found["off_low"][-1])
    assert number(found, "off", snapshot=10) == number(found, "off", at=1)
    assert number(found, "count") == (3.0, 3.0, 3.0)
