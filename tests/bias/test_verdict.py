"""The rule of the verdict, on numbers that are planted."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxattn.bias import verdict
from jaxattn.statistics import Estimate

NAMES = ("frobenius", "nuclear", "max")


def estimate(means, half: float = 0.002) -> Estimate:
    means = np.asarray(means, float)
    return Estimate(means, means - half, means + half, np.full(means.shape, half / 2))


STILL = estimate([0.0, 0.0, 0.0], 1e-4)


def judged(ratio, trend=STILL, probability=1.0, seeds=100, decades=1.0) -> verdict.Verdict:
    return verdict.of(NAMES, ratio, trend, probability, seeds, decades)


def test_the_norm_above_all_others_is_named():
    found = judged(estimate([0.998, 0.85, 0.5]))
    assert found == verdict.Verdict(("frobenius",), decided=True)
    assert str(found) == "frobenius"


def test_norms_whose_intervals_overlap_are_named_together_the_closest_first():
    found = judged(estimate([0.996, 0.998, 0.5]))
    assert found.norms == ("nuclear", "frobenius")
    assert str(found) == "nuclear and frobenius"


def test_what_may_lie_below_the_threshold_is_not_named_beside_another():
    ratio = estimate([0.98, 0.975, 0.5])._replace(low=np.array([0.975, 0.96, 0.4]), high=np.array([0.985, 0.99, 0.6]))
    found = judged(ratio)
    assert not found.decided
    assert found.reason == "nuclear cannot be told from frobenius, and may lie below 0.97"


def test_none_of_these_needs_all_to_be_below_and_to_stand_still():
    ratio = estimate([0.9, 0.85, 0.5])
    assert str(judged(ratio)) == "none of these"
    rising = judged(ratio, estimate([0.02, 0.0, 0.0]))
    assert (rising.decided, rising.norms) == (False, ())
    assert rising.reason == "still moving: frobenius may change by 0.01 or more per decade of steps"
    assert not judged(ratio, estimate([0.0, 0.0, -0.02])).decided
    # Zero change with an interval that does not exclude some.
    assert not judged(ratio, estimate([0.0, 0.0, 0.0], 0.02)).decided


def test_a_norm_that_is_left_again_is_not_named():
    found = judged(estimate([0.98, 0.85, 0.5]), estimate([-0.03, 0.0, 0.0]))
    assert str(found) == "not decided: still moving: frobenius may fall by 0.01 or more per decade of steps"
    # It rises towards 1, as it should.
    assert judged(estimate([0.98, 0.85, 0.5]), estimate([0.03, 0.1, 0.0])).norms == ("frobenius",)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"seeds": 7}, "expected at least 8 seeds, found 7"),
        ({"probability": 0.98}, "not saturated: the mean largest probability is 0.98, below 0.99"),
        ({"trend": None, "decades": 0.0}, "the snapshots reach back over 0 decades of steps, less than 0.5"),
        ({"decades": 0.3}, "the snapshots reach back over 0.3 decades of steps, less than 0.5"),
    ],
    ids=["few seeds", "not saturated", "one snapshot", "a short reach"],
)
def test_what_keeps_a_run_from_deciding_is_said(given, reason):
    for ratio in (estimate([0.998, 0.85, 0.5]), estimate([0.9, 0.85, 0.5])):
        assert judged(ratio, **given) == verdict.Verdict((), decided=False, reason=reason)


def test_an_interval_about_the_threshold_decides_nothing():
    found = judged(estimate([0.97, 0.5, 0.5]))
    assert found.reason == "the interval of frobenius contains 0.97"


def test_margin_ratios_are_weighed_by_their_means_and_their_change_over_the_last_decade():
    steps = np.array([10, 100, 200, 500, 1000])
    # The first step is no part of the last decade.
    along = (
        np.array([0.2, 0.9, 0.9, 0.9, 0.9])
        + np.outer([0.08, 0.0, 0.0], np.ones(5))[:, :, None].transpose(0, 2, 1)[:, 0]
    )
    seeds = np.linspace(-0.002, 0.002, 20)[:, None, None]
    found: Any = verdict.weighed(NAMES, along[None] + seeds, np.ones((20, 5)), steps, jax.random.key(0))
    np.testing.assert_allclose(found.ratio.mean[:, -1], [0.98, 0.9, 0.9], rtol=1e-12)
    np.testing.assert_allclose(found.trend.mean, 0, atol=1e-12)
    assert found.decades == pytest.approx(1)
    assert found.verdict == verdict.Verdict(("frobenius",), decided=True)
    rising = along + 0.03 * np.log10(steps / 1000) * np.array([[0.0], [1.0], [0.0]])
    found = verdict.weighed(NAMES, rising[None] + seeds, np.ones((20, 5)), steps, jax.random.key(0))
    np.testing.assert_allclose(found.trend.mean, [0, 0.03, 0], atol=1e-12)
    short = verdict.weighed(NAMES, along[None, :, -1:] + seeds, np.ones((20, 1)), steps[-1:], jax.random.key(0))
    assert short.trend is None
    assert not short.verdict.decided
