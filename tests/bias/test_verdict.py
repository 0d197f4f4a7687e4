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
    assert answer.decided is not found.startswith("not decided")
    assert answer.norms == (() if not answer.decided or found == "none of these" else tuple(found.split(" and ")))


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
