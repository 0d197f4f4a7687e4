"""The solver for many rows finds what the other solvers find, and proves the same problems infeasible."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from jaxattn import norms, svm
from jaxattn.svm import Status
from tests import instances
from tests.svm.problems import planted, table


def drawn(seed: int, n: int = 6, T: int = 8, d: int = 5) -> svm.Constraints:
    """Unit tokens and queries, with a fifth of the rows absent."""
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    X, Z = (array / np.linalg.norm(array, axis=-1, keepdims=True) for array in (X, Z))
    kinds: dict[str, Any] = {"targets": np.ones((n, T - 1)), "equal": np.zeros((n, T - 1), bool)}
    kinds["present"] = rng.random((n, T - 1)) < 0.8
    return svm.Constraints(X[:, :1] - X[:, 1:], Z, **kinds)


def uneven(seed: int) -> svm.Constraints:
    """Rows whose coordinates are of a thousand different lengths."""
    rows, lengths = drawn(seed), np.logspace(0, -3, 5)
    return rows._replace(differences=rows.differences * lengths, queries=rows.queries * lengths)


def repeated(seed: int) -> svm.Constraints:
    """Half of the rows are those before them."""
    rows = drawn(seed)
    for name in ("differences", "present"):
        getattr(rows, name)[:, 4:] = getattr(rows, name)[:, :3]
    return rows


def mixed(seed: int) -> svm.Constraints:
    """Equations among the rows, and targets of both signs."""
    rows, rng = drawn(seed), np.random.default_rng(seed)
    return rows._replace(equal=rng.random((6, 7)) < 0.2, targets=rng.normal(size=(6, 7)))


def flat(seed: int) -> svm.Constraints:
    """Tokens in a plane: most of these problems are infeasible."""
    rows = drawn(seed)
    return rows._replace(differences=np.where(np.arange(5) < 2, rows.differences, 0.0))


def test_it_agrees_with_the_active_set_on_problems_of_all_kinds():
    problems = instances.stacked([kind(seed) for kind in (drawn, uneven, repeated, mixed, flat) for seed in range(8)])
    expected = svm.solve_batch(problems, solver=svm.ActiveSet())
    found = svm.solve_batch(problems, solver=svm.WorkingSet())
    np.testing.assert_array_equal(found.status, expected.status)
    optimal = expected.status == Status.OPTIMAL
    assert 20 < optimal.sum() < 36
    assert set(expected.status[~optimal]) == {Status.INFEASIBLE}
    np.testing.assert_allclose(found.primal[optimal], expected.primal[optimal], rtol=1e-11)
    for W, other in zip(found.W[optimal], expected.W[optimal], strict=True):
        np.testing.assert_allclose(W, other, atol=1e-8 * np.abs(other).max())
    assert found.iterations.max() < 20


def test_it_keeps_all_digits_beside_rows_that_the_active_set_takes_for_dependent():
    rng = np.random.default_rng(0)
    v = rng.normal(size=(20, 8, 10))
    v[..., 0] = np.abs(v[..., 0]) + 0.5
    copies = np.repeat(v, 4, axis=1) + 1e-7 * rng.normal(size=(20, 32, 10))
    problems = svm.Constraints(jnp.asarray(copies[:, :, None, :]), jnp.ones((20, 32, 1)))
    left = svm.solve_batch(problems, solver=svm.ActiveSet()).status == Status.NOT_CONVERGED
    assert left.sum() > 5
    found = svm.solve_batch(problems)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    assert found.gap[left].max() < 1e-13


def test_it_decides_every_problem_of_the_table():
    rows, statuses = zip(*table().values(), strict=True)
    known = planted("frobenius")
    found = svm.solve_batch(instances.stacked([*rows, *(one.constraints for one in known)]), solver=svm.WorkingSet())
    assert [Status(int(status)) for status in found.status[: len(rows)]] == list(statuses)
    for one, W, duals in zip(known, found.W[len(rows) :], found.duals[len(rows) :], strict=True):
        np.testing.assert_allclose(W, one.W, atol=1e-10 * np.abs(one.W).max())
        np.testing.assert_allclose(duals, one.duals, atol=1e-9 * np.abs(one.duals).max())


def test_many_rows_are_solved_by_default_as_by_nonnegative_least_squares():
    rows = drawn(0, n=16, T=33, d=12)
    solution = svm.solve(rows)
    assert Status(int(solution.status)) is Status.OPTIMAL
    # Lawson and Hanson's least-distance program.
    A = np.einsum("nmd,ne->nmde", rows.differences, rows.queries)[rows.present].reshape(-1, 144)
    u = nnls(np.vstack([A.T, np.ones(len(A))]), np.eye(145)[-1], maxiter=10_000)[0]
    W = (A.T @ u / (1 - u.sum())).reshape(12, 12)
    np.testing.assert_allclose(solution.W, W, atol=1e-8 * np.abs(W).max())
    # An interior-point method would need more.
    assert solution.iterations < 10


def test_it_says_what_it_cannot_solve():
    rows = drawn(0)
    with pytest.raises(TypeError, match="WorkingSet: expected arrays of numbers, found tracers"):
        jax.jit(lambda given: svm.WorkingSet()(given, norms.frobenius))(rows)
    with pytest.raises(ValueError, match="WorkingSet: expected hard rows and norm 'frobenius', found 'nuclear'"):
        svm.solve(rows, "nuclear", solver=svm.WorkingSet())
    with pytest.raises(ValueError, match=r"found .* soft rows"):
        svm.solve(rows._replace(equal=None, penalty=np.ones((6, 7))), solver=svm.WorkingSet())
