"""Triangular factors: of few rows, and of more than one panel."""

import jax
import numpy as np
import pytest

from jaxattn.svm.pivoting import cholesky, inverse_of_lower, inverse_root, is_positive_definite


def gram(order: int, copied: int | None = None, seed: int = 0) -> np.ndarray:
    """Return the Gram matrix of independent rows, or with the last row a copy of another one."""
    rows = np.random.default_rng(seed).normal(size=(order, order + 5))
    if copied is not None:
        rows[-1] = rows[copied]
    return rows @ rows.T


@pytest.mark.parametrize("order", [1, 7, 32, 33, 70])
def test_factors_of_any_order_are_those_of_lapack(order: int) -> None:
    """The factor, its pivots, its inverse, and the root of the inverse."""
    A = gram(order)
    L, pivots = cholesky(jax.numpy.asarray(A))
    expected = np.linalg.cholesky(A)
    np.testing.assert_allclose(L, expected, atol=1e-12)
    np.testing.assert_allclose(pivots, np.diag(expected) ** 2, rtol=1e-9)
    inverse = np.linalg.inv(expected)
    for found in (inverse_of_lower(L), inverse_root(jax.numpy.asarray(A)), inverse_root(A[None])[0]):
        np.testing.assert_allclose(found, inverse, atol=1e-9 * abs(inverse).max())
        assert (np.triu(found, 1) == 0).all()


@pytest.mark.parametrize(("order", "copied"), [(9, 3), (70, 3), (70, 50)])
def test_the_second_of_two_equal_rows_is_left_out(order: int, copied: int) -> None:
    """Its row of the root is zero, and the others give the inverse of the rest, also across panels."""
    A = gram(order, copied)
    R = np.asarray(inverse_root(jax.numpy.asarray(A)))
    assert (R[-1] == 0).all()
    assert np.diagonal(R)[:-1].min() > 0
    np.testing.assert_allclose((R.T @ R)[:-1, :-1] @ A[:-1, :-1], np.eye(order - 1), atol=1e-8)
    assert not is_positive_definite(jax.numpy.asarray(A))


@pytest.mark.parametrize("place", [0, 40, 69])
def test_a_negative_eigenvalue_is_found_in_each_panel(place: int) -> None:
    """One negative diagonal entry makes a matrix indefinite, on its own and in a stack, in JAX and in NumPy."""
    A = np.stack([gram(70), gram(70)])
    A[1, place, place] = -1.0
    for stack in (A, jax.numpy.asarray(A)):
        assert np.asarray(is_positive_definite(stack)).tolist() == [True, False]


def test_a_matrix_without_a_positive_pivot_has_no_root(capfd: pytest.CaptureFixture[str]) -> None:
    """NumPy's root is zero, and LAPACK does not complain of an empty matrix."""
    assert (inverse_root(-np.eye(3)[None]) == 0).all()
    assert capfd.readouterr() == ("", "")
