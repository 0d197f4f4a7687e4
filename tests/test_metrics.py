"""Norm, correlation, margin ratio and rank: values, invariances, extreme sizes, and inputs without a direction."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import metrics, norms, svm
from tests import instances

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


def test_rank_by_singular_values_is_the_rank():
    draws = np.random.default_rng(0).normal(size=(2, 6, 6))
    matrices = np.stack([draws[0], draws[1, :, :2] @ draws[1, :2]])
    values = np.linalg.svd(matrices, compute_uv=False)
    assert metrics.rank_of(values).tolist() == jax.vmap(metrics.rank)(jnp.asarray(matrices)).tolist() == [6, 2]


@cache
def posed(norm="frobenius"):
    """Constraints of the shared shape with their certified solution."""
    constraints = instances.lane(instances.constraints(3), 0)
    return constraints, svm.solve(constraints, norm=norm)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", norms.frobenius, norms.squared(norms.nuclear)])
@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200])
def test_a_solution_of_any_length_has_all_of_its_margin(norm, size):
    constraints, solution = posed(norms.named(norm).plain.name)
    np.testing.assert_allclose(metrics.margin_ratio(size * solution.W, constraints, norm, solution), 1, rtol=1e-12)
    assert metrics.margin_ratio(-size * solution.W, constraints, norm, solution) < 0


def test_the_margin_ratio_is_the_one_of_its_definition():
    constraints, solution = posed("nuclear")
    targets = 1 + 0.5 * np.arange(constraints.differences[..., 0].size).reshape(constraints.differences.shape[:2])
    present = np.arange(targets.size).reshape(targets.shape) != 2
    masked = constraints._replace(targets=jnp.asarray(targets), present=jnp.asarray(present))
    for rows, best in ((constraints, solution), (masked, svm.solve(masked, norm="nuclear"))):

        def margin(V, rows=rows):
            found = []
            for i, j in np.ndindex(targets.shape):
                if rows.present is None or present[i, j]:
                    of_row = rows.differences[i, j] @ V @ rows.queries[i]
                    found.append(of_row / (1 if rows.targets is None else targets[i, j]))
            return min(found) / np.linalg.svd(V, compute_uv=False).sum()

        near = best.W + 0.01 * jnp.asarray(RNG.normal(size=best.W.shape))
        found = metrics.margin_ratio(near, rows, "nuclear", best)
        np.testing.assert_allclose(found, margin(near) / margin(best.W), rtol=1e-12)
        assert found < 1


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**31 - 1), st.sampled_from(["frobenius", "nuclear"]), st.floats(-3, 1))
def test_no_matrix_has_more_than_the_whole_margin(seed, norm, away):
    constraints, solution = posed(norm)
    other = np.random.default_rng(seed).normal(size=solution.W.shape)
    ratio = metrics.margin_ratio(solution.W + 10.0**away * jnp.asarray(other), constraints, norm, solution)
    assert ratio <= 1 + float(solution.gap) + 1e-12


LANES = jax.jit(jax.vmap(metrics.margin_ratio, in_axes=(0, None, None, None)), static_argnums=2)


@pytest.mark.parametrize("entry", TRICKY)
def test_a_matrix_without_a_direction_has_no_margin_ratio(entry):
    constraints, solution = posed()
    W = jnp.full(solution.W.shape, entry)
    with pytest.raises(ValueError, match=r"^margin_ratio: expected W with a direction"):
        metrics.margin_ratio(W, constraints, "frobenius", solution)
    lanes = LANES(jnp.stack([W, solution.W]), constraints, "frobenius", solution)
    assert np.isnan(lanes[0])
    np.testing.assert_allclose(lanes[1], 1, rtol=1e-12)


def test_what_is_not_certified_or_has_no_margin_is_refused_by_name():
    constraints, solution = posed()
    W, shape = solution.W, constraints.differences.shape[:2]
    assert metrics._OPTIMAL == svm.Status.OPTIMAL
    for status in set(svm.Status) - {svm.Status.OPTIMAL}:
        unsolved = solution._replace(status=jnp.asarray(int(status)))
        with pytest.raises(ValueError, match=f"certified optimal, found status {int(status)}"):
            metrics.margin_ratio(W, constraints, "frobenius", unsolved)
        assert np.isnan(jax.jit(metrics.margin_ratio, static_argnums=2)(W, constraints, "frobenius", unsolved))
    one = jnp.zeros(shape).at[0, 1].set(1)
    for field in ({"equal": one > 0}, {"penalty": jnp.where(one > 0, 10.0, jnp.inf)}, {"targets": 1 - one}):
        with pytest.raises(ValueError, match=r"^margin_ratio: expected hard inequalities .* found 1 rows"):
            metrics.margin_ratio(W, constraints._replace(**field), "frobenius", solution)
    with pytest.raises(ValueError, match=r"^margin_ratio: expected W of the solution's shape"):
        metrics.margin_ratio(W[:3], constraints, "frobenius", solution)
    with pytest.raises(ValueError, match=r"^norm: expected one of"):
        metrics.margin_ratio(W, constraints, "fro", solution)
