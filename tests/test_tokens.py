"""Token scores, optimal tokens, and the tokens that attention selects."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, tokens
from tests import instances
from tests.instances import assert_close


def test_scores_are_label_times_head_of_each_token():
    problem = instances.problem()
    expected = np.einsum("n,ntd,d->nt", problem.Y, problem.X, problem.v)
    assert_close(tokens.scores(problem), expected)
    np.testing.assert_array_equal(tokens.optimal(problem), expected.argmax(axis=1))


def test_scores_and_optimal_tokens_follow_the_head():
    def away(x, v):
        return -jnp.vdot(v, x)

    problem = instances.problem()
    assert_close(tokens.scores(problem, head=away), -np.asarray(tokens.scores(problem)))
    np.testing.assert_array_equal(tokens.optimal(problem, head=away), np.argmin(tokens.scores(problem), axis=1))


def test_flipping_the_labels_turns_the_worst_token_into_the_optimal_one():
    problem = instances.problem()
    flipped = Problem(X=problem.X, Z=problem.Z, Y=-problem.Y, v=problem.v)
    np.testing.assert_array_equal(tokens.optimal(flipped), np.argmin(tokens.scores(problem), axis=1))


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
    shuffled = Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v)
    for select in (tokens.optimal, lambda p: tokens.selected(W, p)):
        now = np.asarray(select(shuffled))
        np.testing.assert_array_equal(order[np.arange(instances.n), now], select(problem))


def test_a_lane_of_jit_and_vmap_is_a_lone_call():
    many, W = instances.problems(4), instances.free()
    selected = jax.jit(jax.vmap(tokens.selected, in_axes=(None, 0)))(W, many)
    optimal = jax.jit(jax.vmap(tokens.optimal))(many)
    for i in range(4):
        one = instances.lane(many, i)
        np.testing.assert_array_equal(selected[i], tokens.selected(W, one))
        np.testing.assert_array_equal(optimal[i], tokens.optimal(one))


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^W: expected shape \(5, 5\)"):
        tokens.selected(jnp.zeros((4, 4)), instances.problem())
