"""The matrices that set the bar for trained ones: draws from a cone with known moments, means, nearest ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import metrics, norms, svm
from jaxattn.bias import nulls
from tests import instances

# Draws of one number compile once.
LANES, D, DRAWS = 3, 3, 30
RATIO = jax.jit(metrics.margin_ratio, static_argnums=2)


@pytest.fixture(scope="module")
def rows():
    """Rows that a planted matrix satisfies; in each lane some only pad."""
    rng = np.random.default_rng(0)
    differences: Any = rng.normal(size=(LANES, 4, 3, D))
    queries: Any = rng.normal(size=(LANES, 4, D))
    planted = rng.normal(size=(LANES, D, D))
    signs = np.sign(np.einsum("lntd,lde,lne->lnt", differences, planted, queries))
    present: Any = np.ones((LANES, 4, 3), bool)
    present[:, 2, 1:] = present[:, 3] = False
    differences = np.where(present, signs, -signs)[..., None] * differences
    return svm.Constraints(differences, queries, present=present)


@pytest.fixture(scope="module")
def solution(rows):
    return svm.solve_batch(rows)


def direct(rows, W, norm, solution, lane):
    """Return the ratio of one matrix of a lane, without the batch."""
    one = instances.lane((rows, solution), lane)
    return float(RATIO(W, one[0], norm, one[1]))


def test_draws_from_an_orthant_have_its_moments():
    # W_ij >= 0 for all i and j: each entry is the absolute value of a normal number, independent of the others.
    eye = jnp.eye(D)
    orthant = svm.Constraints(jnp.broadcast_to(eye, (D, D, D)), eye)
    draws = 4000
    words = jax.random.key_data(jax.random.key(3))
    W = np.asarray(jax.jit(nulls.drawn, static_argnums=3)(orthant, np.ones((D, D)), words, draws)[0])
    assert W.min() >= -1e-9
    error = 4 / np.sqrt(draws)
    np.testing.assert_allclose(W.mean(axis=0), np.sqrt(2 / np.pi), atol=error)
    np.testing.assert_allclose(np.median(W, axis=0), 0.6745, atol=1.5 * error)
    np.testing.assert_allclose(np.quantile(W, 0.95), 1.96, atol=error)
    # Consecutive draws are nearly independent.
    centred = W - W.mean(axis=0)
    assert abs((centred[1:] * centred[:-1]).mean() / centred.var()) < error


def test_draws_from_a_half_space_are_normal_but_for_one_sign():
    query = jnp.ones((1, D)) / np.sqrt(D)
    half = svm.Constraints(jnp.array([[[0.0, 5.0, 0.0]]]), query)
    words = jax.random.key_data(jax.random.key(4))
    W = np.asarray(jax.jit(nulls.drawn, static_argnums=3)(half, np.ones((D, D)), words, 4000)[0])
    along = W[:, 1] @ query[0]
    assert along.min() >= -1e-9
    assert along.mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.05)
    np.testing.assert_allclose(W[:, [0, 2]].mean(axis=0), 0, atol=0.07)
    np.testing.assert_allclose(W[:, [0, 2]].std(axis=0), 1, atol=0.05)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_each_null_is_the_ratio_of_its_matrix(rows, solution, norm):
    W = solution.W + 0.05 * np.random.default_rng(1).normal(size=solution.W.shape)
    start = np.random.default_rng(2).normal(size=W.shape)
    best = svm.solve_batch(rows, norm)
    found: Any = nulls.ratios(rows, W, norm, best, jax.random.key(0), start, DRAWS)
    assert found.cone.shape == (LANES, DRAWS)
    assert (found.cone >= -1e-9).all()
    assert (found.cone < 1).all()
    assert found.unsolved == 0
    for lane in range(LANES):
        units = [
            np.outer(rows.differences[lane, i, k], rows.queries[lane, i]) for i, k in np.argwhere(rows.present[lane])
        ]
        mean = sum(unit / np.linalg.norm(unit) for unit in units)
        assert found.mean[lane] == pytest.approx(direct(rows, mean, norm, best, lane))
        smallest = min((unit * W[lane]).sum() for unit in units)
        # Nearest to the start: no shorter way keeps the margins, which it attains.
        nearest, status = nulls._nearest(rows, W, start)
        margins = [(unit * nearest[lane]).sum() for unit in units]
        assert status[lane] == svm.Status.OPTIMAL
        assert min(margins) == pytest.approx(smallest, rel=1e-6)
        assert np.linalg.norm(nearest[lane] - start[lane]) <= np.linalg.norm(W[lane] - start[lane])
        assert found.nearest[lane] == pytest.approx(direct(rows, nearest[lane], norm, best, lane))


def test_from_zero_the_nearest_matrix_is_the_optimum(rows, solution):
    start = 0 * solution.W
    found: Any = nulls.ratios(rows, 3 * solution.W, "frobenius", solution, jax.random.key(0), start, DRAWS)
    np.testing.assert_allclose(found.nearest, 1)
    np.testing.assert_allclose(found.bound(), 1)


def test_a_start_with_the_margins_is_nearest_to_itself(rows, solution):
    # The second trained matrix violates rows, and so does its start; the third has no margin, as zero has none.
    sizes = np.array([1.0, -2.0, 0.0])[:, None, None]
    W, start = sizes * solution.W, np.array([2.0, -2.0, 0.0])[:, None, None] * solution.W
    found: Any = nulls.ratios(rows, W, "frobenius", solution, jax.random.key(0), start, DRAWS)
    assert found.nearest[0] == pytest.approx(1)
    assert found.nearest[1] == pytest.approx(direct(rows, -solution.W[1], "frobenius", solution, 1))
    assert found.nearest[2] == 0
    assert found.unsolved == 0


def test_an_unsolved_null_is_counted_and_exceeded_by_nothing():
    status = np.array([svm.Status.OPTIMAL, svm.Status.NOT_CONVERGED])
    found = nulls.Nulls(np.zeros((2, 4)), np.array([0.2, 0.2]), np.array([0.1, np.inf]), status)
    assert found.unsolved == 1
    assert found.bound().tolist() == [0.2, np.inf]


def test_inputs_without_an_answer_are_named(rows, solution):
    key, W = jax.random.key(0), solution.W
    with pytest.raises(ValueError, match="solution: expected certified optima, found 3 lanes of 3"):
        nulls.ratios(rows, W, norms.frobenius, solution._replace(status=solution.status + 2), key)
    with pytest.raises(ValueError, match=r"start: expected finite numbers \(3, 3, 3\), found \(3, 2, 3\)"):
        nulls.ratios(rows, W, norms.frobenius, solution, key, W[:, :2])
    with pytest.raises(ValueError, match="W: expected finite numbers"):
        nulls.ratios(rows, np.nan * W, norms.frobenius, solution, key)
    with pytest.raises(ValueError, match="constraints: expected hard inequalities with target 1"):
        nulls.ratios(svm.soft(rows, 1.0), W, norms.frobenius, solution, key)
    with pytest.raises(ValueError, match="draws: expected"):
        nulls.ratios(rows, W, norms.frobenius, solution, key, draws=0)


def test_a_cone_too_thin_to_draw_from_is_exceeded_by_nothing(rows):
    # Two nearly opposite rows of one query: directions within 1e-9 of the second axis, and so across it.
    differences, present = np.zeros_like(rows.differences), np.zeros_like(rows.present)
    differences[:, :2, 0, :2] = [[1.0, 1e-9], [-1.0, 1e-9]]
    present[:, :2, 0] = True
    thin = svm.Constraints(differences, np.zeros_like(rows.queries) + np.eye(D)[0], present=present)
    solution = svm.solve_batch(thin)
    found = nulls.ratios(thin, solution.W, "frobenius", solution, jax.random.key(0), draws=DRAWS)
    assert np.isinf(found.cone).all()
    assert np.isinf(found.bound()).all()
