"""Attention probabilities: the formula, its symmetries, and weights that do not fit."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import Problem, attention, data, initial
from jaxattn.attention import Factored
from tests import instances
from tests.instances import assert_close, d, n


def softmax_of_each(W, problem):
    """The formula, one input and one token at a time, in NumPy."""
    rows = []
    for X, z in zip(np.asarray(problem.X), np.asarray(problem.Z), strict=True):
        logits = np.array([x @ np.asarray(W) @ z for x in X])
        weights = np.exp(logits - logits.max())
        rows.append(weights / weights.sum())
    return np.array(rows)


def test_probabilities_are_the_softmax_of_token_w_query():
    problem, W = instances.problem(), 3 * instances.free()
    assert_close(attention.probabilities(W, problem), softmax_of_each(W, problem))


@pytest.mark.parametrize("m", [1, 2, d, d + 3])
def test_factored_weights_of_any_width_stand_for_their_product(m):
    problem, factored = instances.problem(), instances.factored(m=m)
    W = np.asarray(factored.K) @ np.asarray(factored.Q).T
    assert_close(factored.W, W)
    assert_close(attention.matrix(factored), W)
    assert_close(attention.probabilities(factored, problem), softmax_of_each(W, problem))


@pytest.mark.parametrize("size", [1e6, 1e300])
def test_large_logits_saturate_without_overflow(size):
    probabilities = np.asarray(attention.probabilities(size * instances.free(), instances.problem()))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(probabilities.max(axis=1), 1)


def test_zero_weights_attend_to_all_tokens_alike():
    probabilities = attention.probabilities(jnp.zeros((d, d)), instances.problem())
    assert_close(probabilities, np.full((n, instances.T), 1 / instances.T))


def test_attended_is_the_mean_of_the_tokens_under_the_probabilities():
    problem = instances.problem()
    s = attention.probabilities(instances.free(), problem)
    expected = [X.T @ p for X, p in zip(np.asarray(problem.X), np.asarray(s), strict=True)]
    assert_close(attention.attended(s, problem), np.array(expected))


@partial(jax.jit, static_argnums=1)
def drawn(key, shape):
    return data.sphere(key, *shape), 5 * initial.free(key, shape[-1])


probabilities = jax.jit(attention.probabilities)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.sampled_from([(1, 2, 1), (3, 4, 5)]), st.integers(0, 2**31 - 1), st.floats(-20, 20))
def test_tokens_permute_the_probabilities_and_shifts_leave_them(shape, seed, shift):
    rows, count, _ = shape
    problem, W = drawn(jax.random.key(seed), shape)
    s = probabilities(W, problem)
    np.testing.assert_allclose(np.asarray(s).sum(axis=1), 1, rtol=1e-12)
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(count), (rows, 1)), axis=1)
    shuffled = np.take_along_axis(np.asarray(problem.X), order[..., None], axis=1)
    permuted = probabilities(W, Problem(X=shuffled, Z=problem.Z, Y=problem.Y, v=problem.v))
    assert_close(permuted, np.take_along_axis(np.asarray(s), order, axis=1), rtol=1e-11)
    # A vector added to all tokens of an input adds one number to all of its logits.
    moved = Problem(X=np.asarray(problem.X) + shift, Z=problem.Z, Y=problem.Y, v=problem.v)
    assert_close(probabilities(W, moved), s, rtol=1e-10)


def pair(K, Q) -> Factored:
    return Factored(jnp.asarray(K), jnp.asarray(Q))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((d, d + 1)), r"^W: expected shape \(5, 5\) .* found \(5, 6\)"),
        (np.zeros((d + 1, d + 1)), r"^W: expected shape \(5, 5\) .* found \(6, 6\)"),
        (np.zeros((2, d, d)), r"^W: expected shape \(5, 5\) .* found \(2, 5, 5\)"),
        (np.zeros(d), r"^W: expected shape \(5, 5\) .* found \(5,\)"),
        (np.zeros((d, d), np.float32), r"^W: expected dtype float64 .* found float32"),
        (pair(np.zeros((d + 1, 2)), np.zeros((d, 2))), r"^K: expected shape \(5, m\) .* found \(6, 2\)"),
        (pair(np.zeros((d, 2)), np.zeros((2, d))), r"^Q: expected shape \(5, m\) .* found \(2, 5\)"),
        (pair(np.zeros((d, 2)), np.zeros((d, 3))), r"^K, Q: expected the same shape .*\(5, 2\) and \(5, 3\)"),
        (pair(np.zeros((d, 2)), np.zeros((d, 2), np.float32)), r"^Q: expected dtype float64 .* found float32"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(weights, message):
    weights = jax.tree.map(jnp.asarray, weights)
    with pytest.raises(ValueError, match=message):
        attention.probabilities(weights, instances.problem())
    with pytest.raises(ValueError, match=message):
        jax.jit(attention.logits)(weights, instances.problem())


@pytest.mark.parametrize("weights", ["W", [[1.0]], None])
def test_weights_that_are_no_arrays_are_refused(weights):
    with pytest.raises(ValueError, match=r"^weights: expected an array or Factored\(K, Q\), found"):
        attention.check_weights(weights, instances.problem())
