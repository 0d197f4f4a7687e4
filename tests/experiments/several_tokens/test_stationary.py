"""The best distribution over the selected tokens: against a convex solver, against samples, and by hand."""

from dataclasses import replace
from functools import cache, partial

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data
from jaxattn.experiments.several_tokens import stationary
from tests import instances

SEEDS = 12
RNG = np.random.default_rng(3)
ALLOWED = RNG.random((SEEDS, 3, 4)) < 0.75
ALLOWED[..., 0] |= ~ALLOWED.any(axis=-1)


def drawn(law) -> Problem:
    return jax.vmap(law)(jax.random.split(jax.random.key(5), SEEDS))


@cache
def orthonormal() -> Problem:
    return drawn(partial(data.orthonormal, n=3, T=4, d=6))


@cache
def layered() -> Problem:
    problems = drawn(partial(data.mlp, n=3, T=4, d=5))
    return replace(problems, Y=-jnp.ones_like(problems.Y))


def best_of(X, v, allowed, penalty=None):
    """The largest value of the quadratic head, or the least of the ReLUs, by a convex solver."""
    s = cvxpy.Variable(len(X))
    x = X.T @ s
    objective = v @ x - penalty * cvxpy.sum_squares(x) if penalty is not None else -cvxpy.sum(cvxpy.pos(v.T @ x))
    rest = np.flatnonzero(~allowed)
    constraints = [s >= 0, cvxpy.sum(s) == 1, *([s[rest] == 0] if len(rest) else [])]
    problem = cvxpy.Problem(cvxpy.Maximize(objective), constraints)
    problem.solve(solver="CLARABEL")
    return float(np.asarray(problem.value, float)), np.asarray(s.value, float)


@pytest.mark.parametrize("penalty", [0.05, 0.3, 2.0])
def test_the_quadratic_head_is_best_where_a_convex_solver_finds_it(penalty):
    best, unique = stationary.quadratic(orthonormal(), penalty, ALLOWED)
    assert unique.all()
    np.testing.assert_allclose(best.sum(axis=-1), 1, rtol=1e-12)
    assert (best[~ALLOWED] == 0).all()
    for seed, i in np.ndindex(4, 3):
        args = np.asarray(orthonormal().X[seed, i]), np.asarray(orthonormal().v[seed]), ALLOWED[seed, i], penalty
        np.testing.assert_allclose(best[seed, i], best_of(*args)[1], atol=2e-5)


def test_without_a_penalty_the_token_of_highest_score_is_best():
    best, unique = stationary.quadratic(orthonormal(), 0.0, ALLOWED)
    scores = np.where(ALLOWED, np.einsum("sntd,sd->snt", orthonormal().X, orthonormal().v), -np.inf)
    np.testing.assert_array_equal(best.argmax(axis=-1), scores.argmax(axis=-1))
    assert (best.max(axis=-1) == 1).all()
    assert unique.all()


def test_more_tokens_are_mixed_the_larger_the_penalty_is():
    every = np.ones_like(ALLOWED)
    sizes = [(stationary.quadratic(orthonormal(), one, every)[0] > 0).sum() for one in (0.0, 0.1, 0.3, 1.0, 100.0)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (SEEDS * 3, SEEDS * 12)


def test_the_quadratic_head_wants_orthonormal_tokens_and_positive_labels():
    for wrong in (replace(orthonormal(), X=2 * orthonormal().X), replace(orthonormal(), Y=-orthonormal().Y)):
        with pytest.raises(ValueError, match=r"^stationary: expected orthonormal tokens and labels of \+1"):
            stationary.quadratic(wrong, 0.1, ALLOWED)


def test_the_relus_are_least_where_a_convex_solver_finds_them():
    best, unique = stationary.relu(layered(), ALLOWED)
    np.testing.assert_allclose(best.sum(axis=-1), 1, rtol=1e-12)
    assert (best[~ALLOWED] == 0).all()
    assert (best >= 0).all()
    flat = 0
    for seed, i in np.ndindex(SEEDS, 3):
        X, V = np.asarray(layered().X[seed, i]), np.asarray(layered().v[seed])
        value, s = best_of(X, V, ALLOWED[seed, i])
        np.testing.assert_allclose(np.maximum(best[seed, i] @ X @ V, 0).sum(), -value, atol=1e-6)
        if unique[seed, i]:
            np.testing.assert_allclose(best[seed, i], s, atol=1e-3)
        flat += value > -1e-7 and not unique[seed, i]
    assert 0 < flat < unique.size  # Both kinds were looked at.


def test_a_label_of_plus_one_asks_for_one_token():
    best, unique = stationary.relu(replace(layered(), Y=-layered().Y), ALLOWED)
    of_tokens = np.maximum(np.einsum("sntd,sdw->sntw", layered().X, layered().v), 0).sum(axis=-1)
    expected = np.where(ALLOWED, of_tokens, -np.inf).argmax(axis=-1)
    np.testing.assert_array_equal(best.argmax(axis=-1), expected)
    assert (best.max(axis=-1) == 1).all()
    assert unique.all()


@pytest.mark.parametrize(
    ("seen", "expected", "unique"),
    [
        ([[1.0, -1.0], [-1.0, 1.0]], [0.5, 0.5], True),  # |s_1 - s_2|: zero at one point alone.
        ([[3.0, -1.0], [-1.0, 1.0]], [0.25, 0.75], True),  # The slopes are 4 - 2 above 1/4, and -2 below.
        ([[1.0, 1.0], [2.0, 1.0]], [1.0, 0.0], True),  # One token is better.
        ([[-1.0, -1.0], [-2.0, -1.0]], None, False),  # All units are off everywhere.
        ([[1.0, -1.0], [1.0, -1.0]], None, False),  # Two equal tokens.
    ],
)
def test_by_hand(seen, expected, unique):
    # With the tokens e_1 and e_2 a layer is what it sees of them; d = 2, one input.
    problem = Problem(np.eye(2)[None, None], np.ones((1, 1, 2)), -np.ones((1, 1)), np.array(seen)[None])
    best, found = stationary.relu(problem, np.ones((1, 1, 2), bool))
    assert bool(found[0, 0]) is unique
    if expected is not None:
        np.testing.assert_allclose(best[0, 0], expected, atol=1e-12)


def test_a_head_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"^v: expected a layer"):
        stationary.relu(orthonormal(), ALLOWED)
    with pytest.raises(ValueError, match=r"^v: expected a direction"):
        stationary.quadratic(instances.stacked([instances.lane(layered(), 0)]), 0.1, ALLOWED[:1])
