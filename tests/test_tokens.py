"""Token scores, optimal tokens, and the tokens that attention selects."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, svm, tokens
from tests import instances
from tests.instances import assert_close


def test_scores_are_label_times_head_of_each_token():
    problem = instances.problem()
    expected = np.einsum("n,ntd,d->nt", problem.Y, problem.X, problem.v)
    assert_close(tokens.scores(problem), expected)
    np.testing.assert_array_equal(tokens.optimal(problem), expected.argmax(axis=1))
    # With another head, or the labels flipped, the worst tokens are the optimal ones.
    flipped = replace(problem, Y=-problem.Y)
    for scores, optimal in (
        (tokens.scores(problem, head=away), tokens.optimal(problem, head=away)),
        (tokens.scores(flipped), tokens.optimal(flipped)),
    ):
        assert_close(scores, -expected)
        np.testing.assert_array_equal(optimal, expected.argmin(axis=1))


def away(x, v):
    return -jnp.vdot(v, x)


@pytest.mark.parametrize("weights", [instances.free(), instances.factored(m=2)], ids=["free", "factored"])
def test_selected_tokens_have_the_largest_probability(weights):
    problem = instances.problem()
    expected = np.argmax(attention.probabilities(weights, problem), axis=1)
    np.testing.assert_array_equal(tokens.selected(weights, problem), expected)


def test_selection_is_read_where_probabilities_tie():
    # Logits one unit in the last place apart: their exponentials, and so the probabilities, are equal.
    lower, upper = 0.1, np.nextafter(0.1, 1.0)
    problem = Problem(X=[[[lower], [upper]]], Z=[[1.0]], Y=[1.0], v=[1.0])
    s = attention.probabilities(jnp.ones((1, 1)), problem)
    assert s[0, 0] == s[0, 1]
    np.testing.assert_array_equal(tokens.selected(jnp.ones((1, 1)), problem), [1])


def test_permuting_the_tokens_permutes_the_selection():
    problem, W = instances.problem(), instances.free()
    order = np.random.default_rng(1).permuted(np.tile(np.arange(instances.T), (instances.n, 1)), axis=1)
    X = jnp.take_along_axis(problem.X, jnp.asarray(order)[..., None], axis=1)
    shuffled = replace(problem, X=X)
    for select in (tokens.optimal, lambda p: tokens.selected(W, p)):
        now = np.asarray(select(shuffled))
        np.testing.assert_array_equal(order[np.arange(instances.n), now], select(problem))


def solved(problem, alpha):
    """Margins and multipliers of the certified Frobenius solution that selects alpha."""
    constraints = svm.token_constraints(problem, alpha)
    solution = svm.solve(constraints)
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    return svm.margins(constraints, solution.W), np.asarray(solution.duals), np.asarray(solution.W)


def test_support_neighbours_are_the_tokens_whose_constraint_is_met_with_equality():
    problem = instances.problem()
    alpha = tokens.optimal(problem)
    margins, duals, W = solved(problem, alpha)
    neighbours = np.asarray(tokens.support_neighbours(margins, alpha))
    logits = np.einsum("ntd,de,ne->nt", problem.X, W, problem.Z)
    above = logits[np.arange(instances.n), alpha][:, None] - logits
    own = np.arange(instances.T) == np.asarray(alpha)[:, None]
    np.testing.assert_array_equal(neighbours, ~own & (np.abs(above - 1) < 1e-6))
    assert not neighbours[own].any()
    assert 0 < neighbours.sum() < neighbours.size - instances.n
    # Every constraint with a multiplier is active; no other one of a problem in general position is.
    np.testing.assert_array_equal(neighbours[~own].reshape(duals.shape), duals > 0)


def test_a_constraint_that_is_met_but_not_needed_makes_a_neighbour_too():
    # Two inputs of one token pair each: the second asks for the same as the first, so one multiplier may be zero.
    X, Z = np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]] * 2), np.array([[1.0, 0.0]] * 2)
    problem = Problem(X=X, Z=Z, Y=[1.0, 1.0], v=[1.0, 0.0])
    alpha = jnp.array([0, 0])
    margins, duals, _ = solved(problem, alpha)
    assert (duals > 0).sum() < duals.size
    np.testing.assert_array_equal(tokens.support_neighbours(margins, alpha), [[False, True, True]] * 2)


def test_a_token_that_cannot_be_seen_is_no_neighbour():
    whole = instances.problem()
    alpha = jnp.zeros(instances.n, int)
    seen = jnp.ones((instances.n, instances.T), bool).at[:, 3].set(False)
    margins, duals, _ = solved(replace(whole, present=seen), alpha)
    neighbours = np.asarray(tokens.support_neighbours(margins, alpha))
    assert not neighbours[:, 3].any()
    np.testing.assert_array_equal(neighbours[:, 1:], duals > 0)


def test_the_tolerance_is_one_of_the_margin():
    margins = jnp.array([[1.0, 1 + 5e-7, 1 + 2e-6]])
    for alpha, expected in ((0, [0, 1, 1, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 0, 0])):
        np.testing.assert_array_equal(tokens.support_neighbours(margins, jnp.array([alpha]))[0], expected)
    np.testing.assert_array_equal(tokens.support_neighbours(margins, jnp.array([3]), 1e-5)[0], [1, 1, 1, 0])


@pytest.mark.parametrize(
    ("alpha", "neighbours", "locally", "globally"),
    [
        ([0, 0], [[0, 1, 1], [0, 1, 1]], True, True),
        ([0, 1], [[0, 1, 1], [0, 0, 0]], True, False),  # A better token, but no neighbour.
        ([0, 1], [[0, 1, 1], [1, 0, 1]], False, False),
        ([0, 2], [[0, 0, 0], [0, 0, 0]], True, False),
        ([0, 2], [[0, 0, 0], [0, 1, 0]], False, False),  # One that scores the same is not outscored.
    ],
)
def test_locally_optimal_tokens_outscore_their_neighbours_and_globally_optimal_ones_all(
    alpha, neighbours, locally, globally
):
    scores, alpha = jnp.array([[3.0, 2.0, 1.0], [3.0, 2.0, 2.0]]), jnp.array(alpha)
    assert tokens.is_locally_optimal(scores, alpha, jnp.array(neighbours, bool)) == locally
    assert tokens.is_globally_optimal(scores, alpha) == globally


def test_where_all_tokens_support_only_the_optimal_ones_are_locally_optimal():
    scores = jax.random.normal(jax.random.key(0), (2, 3))
    every = [(i, j) for i in range(3) for j in range(3)]
    locally = []
    for pair in every:
        alpha = jnp.array(pair)
        neighbours = jnp.arange(3)[None, :] != alpha[:, None]
        assert tokens.all_support(neighbours)
        assert not tokens.all_support(neighbours.at[0, (pair[0] + 1) % 3].set(False))
        if tokens.is_locally_optimal(scores, alpha, neighbours):
            locally.append(pair)
            assert tokens.is_globally_optimal(scores, alpha)
    assert locally == [tuple(np.argmax(scores, axis=1).tolist())]


def test_a_run_has_selected_nothing_before_every_input_is_saturated():
    problem = instances.problem()
    alpha = tokens.optimal(problem)
    margins, _, W = solved(problem, alpha)
    for scale, saturated in ((1.0, False), (20.0, True)):
        weights = jnp.asarray(scale * W)
        probabilities = np.asarray(attention.probabilities(weights, problem))
        assert_close(tokens.saturation(weights, problem), probabilities.max(axis=1).min())
        outcome = tokens.outcome(weights, problem, margins)
        assert [bool(one) for one in outcome] == [saturated, True, True, False]
    # One input that attends to two tokens alike.
    copied = problem.X.at[1, (alpha[1] + 1) % instances.T].set(problem.X[1, alpha[1]])
    halved = replace(problem, X=copied)
    assert tokens.saturation(20.0 * jnp.asarray(W), halved) <= 0.5
