"""The distance of long runs from a solution along their steps, and its rate."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.local.distance import FROM, along
from jaxattn.experiments.local.made import STEPS, long_run, named

KEY = jax.random.key(0)


def test_the_exponent_is_that_of_the_power():
    one = along(long_run(np.minimum(1, 100.0 * STEPS**-1.7)), "frobenius", KEY)
    np.testing.assert_allclose(one["exponent_mean"], -1.7, atol=1e-6)
    np.testing.assert_allclose(one["off"][-1], 100.0 * STEPS[-1] ** -1.7, rtol=0.1)
    # As far as the published runs of W: their interval is about 0.03 wide, with 100 seeds.
    assert 0.02 < float(one["exponent_high"] - one["exponent_low"]) < 0.1


def test_the_distance_is_a_geometric_mean_with_its_interval_and_spread():
    run = long_run(0.01)
    one = along(run, "nuclear", KEY)
    off = run["off"].sel(norm="nuclear").values
    np.testing.assert_allclose(one["off"], np.exp(np.log(off).mean(axis=0)))
    assert np.all((one["off_low"] < one["off"]) & (one["off"] < one["off_high"]))
    np.testing.assert_allclose(one["off_90"], np.quantile(off, 0.9, axis=0))
    assert float(one["near"]) == 0
    assert float(along(long_run(1e-9), "nuclear", KEY)["near"]) == 1


def test_a_short_run_has_no_exponent():
    short = long_run(0.01).isel(snapshot=STEPS < 30_000)
    assert int(short["snapshot"][-1]) > FROM
    assert "exponent_mean" not in along(short, "frobenius", KEY)


def test_runs_made_by_hand_differ_in_name_and_in_the_rates_of_their_seeds():
    one, other = long_run(0.01), long_run(0.01, penalty=1e-9)
    assert len(named([one, other])) == 2
    assert not np.allclose(one["off"], other["off"])
    with pytest.raises(ValueError, match="found two of the same name"):
        named([one, long_run(0.02)])
