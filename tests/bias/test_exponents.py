"""The exponent of a family is read off perfect solutions, and no neighbour of the true norm is named alone."""

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from jaxattn import bias, descent, norms, svm
from jaxattn.bias import exponents
from jaxattn.bias.checkpoints import as_run
from jaxattn.bias.exponents import Exponent
from tests import instances
from tests.instances import slow

SEEDS = 8
PROBLEMS = instances.problems(SEEDS)
# Small in a family, and far from the members that are compared by default.
L, SCHATTEN = ("l_p", 0.27), ("schatten_p", 0.8)


@lru_cache(maxsize=8)
def perfect(family: str, place: float):
    """Weights that grow along certified solutions of a norm."""
    solution = svm.solve_batch(instances.constraints(SEEDS), exponents.member(family, place))
    assert (solution.status == svm.Status.OPTIMAL).all()
    return np.asarray(solution.W)[:, None] * np.array([30.0, 100.0, 300.0])[None, :, None, None]


def given(family: str, place: float):
    return {"X": PROBLEMS.X, "Z": PROBLEMS.Z, "W": perfect(family, place), "steps": (300, 1000, 3000)}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "place"), [L, SCHATTEN])
def test_solutions_of_a_norm_are_not_taken_for_those_that_are_compared_by_default(family, place):
    ranking = bias.rank_arrays(**given(family, place))
    if ranking.verdict.decided:
        named: list[Any] = [norms.named(name) for name in ranking.verdict.norms]
        assert all(abs(1 / one.p - place) < 0.02 for one in named)


@pytest.mark.parametrize(("family", "place"), [slow(*L), SCHATTEN])
def test_solutions_of_a_norm_are_told_from_its_neighbours(family, place):
    ranking = bias.rank_arrays(**given(family, place), norms=[exponents.member(family, place), "2,inf"])
    assert ranking.verdict.norms == (exponents.member(family, place).name,)
    found = {one.family: one for one in ranking.exponents}[family]
    assert found.tells
    assert 1 / found.p == pytest.approx(place, abs=1e-6)


@pytest.mark.parametrize("place", [0.0, slow(0.5)])
def test_the_norms_that_are_compared_name_themselves(place):
    name = exponents.member("l_p", place).name
    ranking = bias.rank_arrays(**given("l_p", place), norms=[name, "nuclear", "spectral"])
    assert ranking.verdict.norms == (name,)
    # A solution of a norm has ratio 1 in it, and less in the others.
    np.testing.assert_allclose(np.diag(ranking.confusion), 1, rtol=1e-7)
    assert (ranking.confusion[~np.eye(3, dtype=bool)] < 1).all()
    np.testing.assert_allclose(ranking.ratio.mean[:, -1], ranking.confusion[0], rtol=1e-6)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, derandomize=True)
@drawn(family=st.sampled_from(sorted(exponents.FAMILIES)), place=st.floats(0.0, 1.0))
def test_steepest_descent_in_any_norm_is_not_taken_for_another(family, place):
    steps = np.unique(np.round(10 ** np.arange(2.5, 3.6, 0.125)).astype(int))
    rule = descent.steepest(exponents.member(family, place), descent.falling_step(2.0))
    given = {"optimizer": rule, "steps": int(steps[-1]), "snapshots": tuple(steps.tolist()), "record_every": 1000}
    run = descent.train_batch(np.zeros((SEEDS, 5, 5)), PROBLEMS, **given)
    verdict = bias.rank(run, PROBLEMS).verdict
    if verdict.decided:
        assert all(abs(exponents.places(name).get(family, np.inf) - place) < 0.05 for name in verdict.norms)


def test_an_exponent_is_inferred_without_a_guess():
    W = perfect(*L)
    found = bias.infer(as_run(W, (300, 1000, 3000)), PROBLEMS, "l_p")
    assert 1 / found.exponent.p == pytest.approx(0.27, abs=0.002)
    assert found.exponent.low < 1 / 0.27 < found.exponent.high
    assert found.fits
    assert str(found).endswith("the family fits")


def test_an_unknown_family_is_named():
    run = as_run(perfect("l_p", 0.0), (300, 1000, 3000))
    with pytest.raises(ValueError, match=r"family: expected one of \['l_p', 'schatten_p'\], found 'l_q'"):
        bias.infer(run, PROBLEMS, "l_q")


@pytest.mark.parametrize(
    ("low", "high", "compared", "gap", "tells"),
    [
        (1.9, 2.1, 2.0, 0.0, True),
        (1.7, 2.1, 2.0, 0.0, False),
        (1.6, 1.9, 2.0, 1 / 1.9 - 0.5, False),
        (25.0, float("inf"), float("inf"), 0.0, True),
        (15.0, float("inf"), float("inf"), 0.0, False),
        (15.0, 40.0, float("inf"), 1 / 40, False),
        (1.0, 1.04, 1.0, 0.0, True),
        (1.25, 2.0, 1.0, 0.2, False),
    ],
)
def test_a_range_holds_an_exponent_and_tells_it_from_its_neighbours(low, high, compared, gap, tells):
    one = Exponent("l_p", 2.0, low, high, 100, compared)
    assert one.gap == pytest.approx(gap)
    assert one.tells is tells
    assert str(one) == (f"l_p with p from {low:.3g}" + ("" if np.isinf(high) else f" to {high:.3g}"))
