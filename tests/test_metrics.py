"""Norm, correlation and rank: values, invariances, extreme sizes, and inputs without a direction."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import metrics

RNG = np.random.default_rng(0)
A, B = jnp.asarray(RNG.normal(size=(4, 4))), jnp.asarray(RNG.normal(size=(4, 4)))
TRICKY = [np.nan, np.inf, 0.0]


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e300])
def test_the_norm_neither_over_nor_underflows(size):
    np.testing.assert_allclose(metrics.norm(size * jnp.array([[3.0, 0.0], [0.0, 4.0]])), 5 * size, rtol=1e-14)


def test_the_norm_of_zero_is_zero():
    assert metrics.norm(jnp.zeros((3, 3))) == 0


def test_correlation_is_the_cosine_of_the_angle_between_matrices():
    expected = np.sum(A * B) / np.sqrt(np.sum(A**2) * np.sum(B**2))
    np.testing.assert_allclose(metrics.correlation(A, B), expected, rtol=1e-14)
    np.testing.assert_allclose(metrics.correlation(B, A), expected, rtol=1e-14)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**31 - 1), st.floats(-250, 250), st.floats(-250, 250))
def test_correlation_does_not_see_size_and_stays_within_one(seed, a, b):
    P, Q = (jnp.asarray(np.random.default_rng((seed, k)).normal(size=(4, 4))) for k in range(2))
    near = metrics.correlation(P, P + 1e-9 * Q)
    assert -1 <= near <= 1
    np.testing.assert_allclose(near, 1, rtol=1e-12)
    lengths = metrics.correlation(10.0**a * P, -(10.0**b) * Q)
    np.testing.assert_allclose(lengths, -metrics.correlation(P, Q), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(metrics.correlation(10.0**a * P, -(10.0**b) * P), -1, rtol=1e-14)


def test_matrices_on_different_entries_are_uncorrelated():
    assert metrics.correlation(jnp.diag(jnp.array([1.0, 0.0])), jnp.diag(jnp.array([0.0, 1.0]))) == 0


@pytest.mark.parametrize("entry", TRICKY)
@pytest.mark.parametrize("place", [0, 1])
def test_a_matrix_without_a_direction_is_refused_by_name(entry, place):
    matrices = [A, A]
    matrices[place] = jnp.full((4, 4), entry)
    with pytest.raises(ValueError, match=rf"^correlation: expected {'AB'[place]} with a direction"):
        metrics.correlation(*matrices)


@pytest.mark.parametrize("entry", TRICKY)
def test_a_lane_without_a_direction_is_nan_and_leaves_the_others_alone(entry):
    lanes = jax.vmap(metrics.correlation)(jnp.stack([A, jnp.full((4, 4), entry)]), jnp.stack([B, B]))
    assert np.isnan(lanes[1])
    np.testing.assert_allclose(lanes[0], metrics.correlation(A, B), rtol=1e-14)


def test_matrices_of_different_shapes_are_refused():
    # As a user calls it, without the run-time check of annotations that these tests put in front.
    with pytest.raises(ValueError, match=r"^correlation: expected two matrices of one shape, found \(4, 4\)"):
        inspect.unwrap(metrics.correlation)(A, A[:3])


@pytest.mark.parametrize("r", [0, 1, 2, 4])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_rank_counts_independent_directions_whatever_the_size(r, size):
    U, V = np.linalg.qr(RNG.normal(size=(4, 4)))[0], np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    W = jnp.asarray(size * U[:, :r] @ np.diag(np.arange(1.0, r + 1)) @ V[:, :r].T)
    assert metrics.rank(W) == r


def test_rank_is_read_relative_to_the_largest_singular_value():
    W = jnp.diag(jnp.array([1e3, 1.0, 2e-3, 5e-4]))
    assert metrics.rank(W) == 3
    assert metrics.rank(W, rtol=1e-2) == 1
    assert metrics.rank(W, rtol=1e-7) == 4


def test_a_lane_of_rank_is_a_lone_call():
    lanes = jnp.stack([A, jnp.zeros((4, 4)), jnp.diag(jnp.array([1.0, 1.0, 0.0, 0.0]))])
    np.testing.assert_array_equal(jax.jit(jax.vmap(metrics.rank))(lanes), [4, 0, 2])


def test_rank_by_singular_values_is_the_rank():
    draws = np.random.default_rng(0).normal(size=(2, 6, 6))
    matrices = np.stack([draws[0], draws[1, :, :2] @ draws[1, :2]])
    values = np.linalg.svd(matrices, compute_uv=False)
    assert metrics.rank_of(values).tolist() == jax.vmap(metrics.rank)(jnp.asarray(matrices)).tolist() == [6, 2]
