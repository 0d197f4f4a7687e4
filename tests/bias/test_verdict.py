"""The rule of the verdict, on numbers that are planted."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxattn.bias import Exponent, verdict
from jaxattn.statistics import Estimate

NAMES = ("frobenius", "nuclear", "max")


def estimate(means, half: float = 0.002) -> Estimate:
    means = np.asarray(means, float)
    return Estimate(means, means - half, means + half, np.full(means.shape, half / 2))


STILL = estimate([0.0, 0.0, 0.0], 1e-4)


# Solutions of one norm are far from those of the others.
APART = 0.5 + 0.5 * np.eye(3)


def confused(ratio: float) -> np.ndarray:
    """Nuclear solutions have this ratio in the Frobenius norm; Frobenius solutions are far from the nuclear ones."""
    return APART + (ratio - 0.5) * np.outer([0, 1, 0], [1, 0, 0])


def judged(ratio, trend=STILL, **given) -> verdict.Verdict:
    evidence = {
        "probability": 1.0,
        "seeds": 100,
        "close": np.array([100, 0, 0]),
        "behind": np.array([0, 100, 100]),
        "decades": 1.0,
        "confusion": APART,
    }
    return verdict.of(NAMES, ratio, trend, verdict.Evidence(**(evidence | given)))


def exponent(low, high) -> Exponent:
    return Exponent("l_p", 1.9, low, high, seeds=100, compared=2.0)


HELD, NONE = estimate([0.998, 0.85, 0.5]), estimate([0.9, 0.85, 0.5])
CLOSE_PAIR = estimate([0.98, 0.975, 0.5])._replace(low=np.array([0.975, 0.96, 0.4]), high=np.array([0.985, 0.99, 0.6]))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"ratio": HELD}, "frobenius"),
        # Norms whose intervals overlap are named together, the closest first.
        ({"ratio": estimate([0.996, 0.998, 0.5])}, "nuclear and frobenius"),
        ({"ratio": NONE}, "none of these"),
        # It rises towards 1, as it should.
        ({"ratio": estimate([0.98, 0.85, 0.5]), "trend": estimate([0.03, 0.1, 0.0])}, "frobenius"),
        ({"ratio": CLOSE_PAIR}, "not decided: nuclear cannot be told from frobenius, and may lie below 0.97"),
        (
            {"ratio": NONE, "trend": estimate([0.02, 0.0, 0.0])},
            "not decided: still moving: frobenius may change by 0.01 or more per decade of steps",
        ),
        (
            {"ratio": NONE, "trend": estimate([0.0, 0.0, -0.02])},
            "not decided: still moving: max may change by 0.01 or more per decade of steps",
        ),
        # No change, with an interval that does not exclude some.
        (
            {"ratio": NONE, "trend": estimate([0.0, 0.0, 0.0], 0.02)},
            "not decided: still moving: frobenius, nuclear, max may change by 0.01 or more per decade of steps",
        ),
        (
            {"ratio": estimate([0.98, 0.85, 0.5]), "trend": estimate([-0.03, 0.0, 0.0])},
            "not decided: still moving: frobenius may fall by 0.01 or more per decade of steps",
        ),
        ({"ratio": estimate([0.97, 0.5, 0.5])}, "not decided: the interval of frobenius contains 0.97"),
        ({"ratio": estimate([0.971, 0.5, 0.5])}, "not decided: the interval of frobenius contains 0.97"),
        # The nuclear norm rises faster than the Frobenius norm, and soon exceeds it.
        (
            {"ratio": estimate([0.98, 0.85, 0.5]), "trend": estimate([0.03, 0.15, 0.0])},
            "not decided: still moving: nuclear may overtake frobenius within a decade of steps",
        ),
        # A nuclear solution would have a ratio nearly as large.
        (
            {"ratio": HELD, "confusion": confused(0.995)},
            "not decided: frobenius cannot be told from nuclear, whose solutions have a ratio of 0.9950 in it: this "
            "takes an interval above 0.9975",
        ),
        ({"ratio": HELD, "confusion": confused(0.99)}, "frobenius"),
        # Some seeds obey it and others do not: in the mean it may be named, or none may.
        *(
            (
                {"ratio": ratio, "close": np.array([80, 0, 0]), "behind": np.array([20, 100, 100])},
                "not decided: mixed: of 100 seeds, the ratio in frobenius exceeds 0.97 in 80, and rests below it in 20",
            )
            for ratio in (HELD, NONE)
        ),
        # The others still rise.
        ({"ratio": HELD, "close": np.array([80, 0, 0]), "behind": np.array([2, 100, 100])}, "frobenius"),
        # Its own exponent fits best, another one, or one of several.
        ({"ratio": HELD, "exponents": (exponent(1.98, 2.02),)}, "frobenius"),
        (
            {"ratio": HELD, "exponents": (exponent(1.7, 1.8),)},
            "not decided: frobenius comes nearest of these, but l_p with p from 1.7 to 1.8 fits better",
        ),
        # Its range misses the own exponent by less than the ratio misses 1.
        (
            {"ratio": HELD, "exponents": (exponent(1.9, 1.999),)},
            "frobenius, or a norm near it: l_p with p from 1.9 to 2",
        ),
        (
            {"ratio": HELD, "exponents": (exponent(1.7, 2.1),)},
            "frobenius, or a norm near it: l_p with p from 1.7 to 2.1",
        ),
        *(
            ({"ratio": ratio, **lacking}, f"not decided: {reason}")
            for ratio in (HELD, NONE)
            for lacking, reason in (
                ({"seeds": 7}, "expected at least 8 seeds, found 7"),
                ({"probability": 0.98}, "not saturated: the mean largest probability is 0.98, below 0.99"),
                ({"trend": None, "decades": 0.0}, "the snapshots reach back over 0 decades of steps, less than 0.5"),
                ({"decades": 0.3}, "the snapshots reach back over 0.3 decades of steps, less than 0.5"),
            )
        ),
    ],
)
def test_a_verdict_names_the_norms_or_why_there_is_none(given, found):
    answer = judged(**given)
    assert str(answer) == found
    is_open, is_near = found.startswith("not decided"), "or a norm near it" in found
    assert answer.decided is not (is_open or is_near)
    named = () if is_open or found == "none of these" else (("frobenius",) if is_near else tuple(found.split(" and ")))
    assert answer.norms == named


def test_margin_ratios_are_weighed_by_their_means_and_their_change_over_the_last_decade():
    steps = np.array([10, 100, 200, 500, 1000])
    # The first step is no part of the last decade.
    along = (
        np.array([0.2, 0.9, 0.9, 0.9, 0.9])
        + np.outer([0.08, 0.0, 0.0], np.ones(5))[:, :, None].transpose(0, 2, 1)[:, 0]
    )
    seeds = np.linspace(-0.002, 0.002, 20)[:, None, None]
    found: Any = verdict.weighed(NAMES, along[None] + seeds, np.ones((20, 5)), steps, jax.random.key(0), APART)
    np.testing.assert_allclose(found.ratio.mean[:, -1], [0.98, 0.9, 0.9], rtol=1e-12)
    np.testing.assert_allclose(found.trend.mean, 0, atol=1e-12)
    assert found.decades == pytest.approx(1)
    assert found.verdict == verdict.Verdict(("frobenius",), decided=True)
    rising = along + 0.03 * np.log10(steps / 1000) * np.array([[0.0], [1.0], [0.0]])
    found = verdict.weighed(NAMES, rising[None] + seeds, np.ones((20, 5)), steps, jax.random.key(0), APART)
    np.testing.assert_allclose(found.trend.mean, [0, 0.03, 0], atol=1e-12)
    short = verdict.weighed(NAMES, along[None, :, -1:] + seeds, np.ones((20, 1)), steps[-1:], jax.random.key(0), APART)
    assert short.trend is None
    assert not short.verdict.decided
