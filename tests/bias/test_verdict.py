"""The rule of the verdict, on numbers that are planted."""

from typing import Any

import jax
import numpy as np
import pytest

from jaxattn.bias import Exponent, verdict
from jaxattn.statistics import Estimate

NAMES, SEEDS = ("frobenius", "nuclear", "max"), 100


def estimate(means, half: float = 0.002) -> Estimate:
    means = np.asarray(means, float)
    return Estimate(means, means - half, means + half, np.full(means.shape, half / 2))


# Solutions of one norm are far from those of the others.
APART = 0.5 + 0.5 * np.eye(3)


def confused(ratio: float) -> np.ndarray:
    """Nuclear solutions have this ratio in the Frobenius norm; Frobenius solutions are far from the nuclear ones."""
    return APART + (ratio - 0.5) * np.outer([0, 1, 0], [1, 0, 0])


def seeds(*of_norms: tuple[int, int], number: int = SEEDS) -> np.ndarray:
    """How many seeds obey each norm, and how many do not; the others do not tell."""
    columns = [[1.0] * obey + [0.0] * refuse + [np.nan] * (number - obey - refuse) for obey, refuse in of_norms]
    return np.array(columns).T


FIRST, NO_NORM = seeds((100, 0), (0, 100), (0, 100)), seeds(*[(0, 100)] * 3)


def judged(limit, **given) -> verdict.Verdict:
    evidence = {"obeys": FIRST, "tell": 1.0, "quiet": "", "confusion": APART, "longer": lambda *_: 1.0}
    return verdict.of(NAMES, limit, **(evidence | given))


def exponent(low, high) -> Exponent:
    return Exponent("l_p", 1.9, low, high, seeds=100, compared=2.0)


HELD, NONE = estimate([0.998, 0.85, 0.5]), estimate([0.9, 0.85, 0.5])
PAIR = estimate([0.998, 0.996, 0.5])
TOGETHER = seeds((100, 0), (100, 0), (0, 100))
EITHER_SIDE = "others may end on either side of 0.97"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"limit": HELD}, "frobenius"),
        # Norms whose intervals overlap are named together, the closest first.
        ({"limit": estimate([0.996, 0.998, 0.5]), "obeys": TOGETHER}, "nuclear and frobenius"),
        ({"limit": estimate([0.991, 0.998, 0.5]), "obeys": TOGETHER, "confusion": APART}, "nuclear"),
        ({"limit": NONE, "obeys": NO_NORM}, "none of these"),
        (
            {"limit": PAIR, "obeys": seeds((100, 0), (89, 0), (0, 100))},
            "not decided: nuclear cannot be told from frobenius, and may lie below 0.97",
        ),
        ({"limit": PAIR, "obeys": seeds((100, 0), (90, 0), (0, 100))}, "frobenius and nuclear"),
        # Nine of ten seeds must say the same, either way; those that do not tell say nothing.
        ({"limit": HELD, "obeys": seeds((90, 0), (0, 100), (0, 100))}, "frobenius"),
        (
            {"limit": HELD, "obeys": seeds((89, 3), (0, 100), (0, 100))},
            f"not decided: of 100 seeds, 89 obey frobenius and 3 do not; {EITHER_SIDE}",
        ),
        ({"limit": NONE, "obeys": seeds((0, 90), (4, 90), (0, 90))}, "none of these"),
        (
            {"limit": NONE, "obeys": seeds((2, 89), (0, 100), (1, 30))},
            f"not decided: of 100 seeds, 2 obey frobenius and 89 do not; 1 obey max and 30 do not; {EITHER_SIDE}",
        ),
        # The median's interval must lie above the threshold as well.
        (
            {"limit": estimate([0.9719, 0.85, 0.5])},
            f"not decided: of 100 seeds, 100 obey frobenius and 0 do not; {EITHER_SIDE}",
        ),
        ({"limit": estimate([0.9721, 0.85, 0.5]), "confusion": np.eye(3)}, "frobenius"),
        # Some seeds obey it and others do not, in a run that would be named, or not.
        *(
            (
                {"limit": limit, "obeys": seeds((obey, refuse), (0, 100), (0, 100))},
                f"not decided: mixed: of 100 seeds, {obey} obey frobenius, and {refuse} do not",
            )
            for limit, obey, refuse in ((HELD, 80, 20), (HELD, 90, 10), (NONE, 10, 90))
        ),
        # A nuclear solution would have a ratio nearly as large.
        (
            {"limit": HELD, "confusion": confused(0.995)},
            "not decided: frobenius cannot be told from nuclear, whose solutions have a ratio of 0.9950 in it: this "
            "takes an interval above 0.9975",
        ),
        (
            {"limit": HELD, "confusion": confused(0.995), "longer": lambda *_: 3.14},
            "not decided: frobenius cannot be told from nuclear, whose solutions have a ratio of 0.9950 in it: this "
            "takes an interval above 0.9975; this takes 3.1 times as many steps or more",
        ),
        ({"limit": HELD, "confusion": confused(0.99)}, "frobenius"),
        # Its own exponent fits best, another one, or one of several.
        ({"limit": HELD, "exponents": (exponent(1.98, 2.02),)}, "frobenius"),
        (
            {"limit": HELD, "exponents": (exponent(1.7, 1.8),)},
            "not decided: frobenius comes nearest of these, but l_p with p from 1.7 to 1.8 fits better",
        ),
        # Its range misses the own exponent by less than the limit may miss 1.
        ({"limit": HELD, "exponents": (exponent(1.9, 1.995),)}, "frobenius"),
        (
            {"limit": HELD, "exponents": (exponent(1.8, 1.995),)},
            "frobenius, or a norm near it: l_p with p from 1.8 to 2",
        ),
        (
            {"limit": HELD, "exponents": (exponent(1.7, 2.1),)},
            "frobenius, or a norm near it: l_p with p from 1.7 to 2.1",
        ),
        *(
            ({"limit": limit, "obeys": obeys} | lacking, f"not decided: {reason}")
            for limit, obeys in ((HELD, FIRST), (NONE, NO_NORM))
            for lacking, reason in (
                ({"obeys": seeds((7, 0), (0, 7), (0, 7), number=7)}, "expected at least 8 seeds, found 7"),
                ({"tell": 0.89, "quiet": "stalled: in 11 of 100 seeds"}, "stalled: in 11 of 100 seeds"),
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


def test_a_member_of_the_family_that_the_exponent_excludes_is_not_named_with_the_norm():
    names, limit = ("frobenius", "l_1.75", "l_1.99"), estimate([0.998, 0.997, 0.996])
    evidence = seeds(*[(100, 0)] * 3), 1.0, "", np.ones((3, 3)), lambda *_: 1.0, (exponent(1.95, 2.05),)
    assert verdict.of(names, limit, *evidence).norms == ("frobenius", "l_1.99")


STEPS = np.array([10, 100, 200, 500, 1000])


def weighed(ratio, number=20, probability: Any = 1.0, size=STEPS, stalled=False, steps=STEPS):
    """The ratios of one seed for all norms, repeated with a small spread."""
    many = np.asarray(ratio, float)[None] + np.linspace(-0.002, 0.002, number)[:, None, None]
    shape = (number, len(steps))
    given = (
        many,
        np.broadcast_to(probability, shape).astype(float),
        np.tile(np.asarray(size, float), (number, 1)),
        np.full(number, stalled),
    )
    return verdict.weighed(NAMES, *given, steps, jax.random.key(0), APART)


def test_margin_ratios_are_weighed_by_their_limits():
    """The first norm's ratio ends at 1, the second's at .9, and the third's does not tell."""
    rising = [1 - 10 / STEPS, 0.9 + 0 * STEPS, np.array([0.2, 0.9, 0.9, 0.9, 0.98])]
    found = weighed(rising)
    assert found.limit is not None
    np.testing.assert_allclose(found.limit.mean[:2], [1, 0.9], atol=1e-3)
    np.testing.assert_allclose(found.ratio.mean[:, -1], [0.99, 0.9, 0.98], rtol=1e-12)
    assert found.decades == pytest.approx(1)
    assert [np.unique(column).tolist() for column in found.obeys[:, :2].T] == [[1.0], [0.0]]
    assert np.isnan(found.obeys[:, 2]).all()
    assert "max cannot be told from frobenius" in str(found.verdict)
    # No ratio exceeds 1, and a limit below the threshold whose range reaches beyond it does not tell.
    assert found.limit.high.max() == 1
    below = weighed([1 - 10 / STEPS, np.array([0.2, 0.9, 0.9, 0.9, 0.93]), 0.5 + 0 * STEPS])
    assert below.limit is not None
    assert below.limit.mean[1] < verdict.CLOSE < below.limit.high[1]
    assert np.isnan(below.obeys[:, 1]).all()
    # The end of the run must be saturated, not its start.
    late = weighed([1 - 10 / STEPS] * 3, probability=np.array([0.3, 0.9, 1.0, 1.0, 1.0]))
    assert (late.obeys == 1).all()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"stalled": True}, "stalled: rounding, floor or penalty outweigh the gradient, in 20 of 20 seeds"),
        (
            {"probability": 0.98},
            "not saturated: the largest probability of some input is below 0.99, in 20 of 20 seeds",
        ),
        (
            {"size": np.ones(5)},
            "no direction: over the last snapshots the norm grows by less than 2%, in 20 of 20 seeds",
        ),
        ({"number": 7}, "expected at least 8 seeds, found 7"),
    ],
)
def test_seeds_that_say_nothing_about_limits_decide_nothing(given, reason):
    found = weighed([1 - 10 / STEPS, 0.9 + 0 * STEPS, 0.5 + 0 * STEPS], **given)
    assert str(found.verdict) == f"not decided: {reason}"
    if "number" not in given:
        assert np.isnan(found.obeys).all()


def test_snapshots_that_do_not_reach_back_give_no_limit():
    few = weighed(np.ones((3, 2)), steps=STEPS[-2:], size=STEPS[-2:])
    assert few.limit is None
    assert str(few.verdict) == "not decided: expected 3 snapshots in the last decade of steps, found 2"
    fewer = weighed(np.ones((3, 2)), number=7, steps=STEPS[-2:], size=STEPS[-2:])
    assert str(fewer.verdict) == "not decided: expected at least 8 seeds, found 7"
    assert weighed(np.ones((3, 1)), steps=STEPS[-1:], size=STEPS[-1:]).trend is None
