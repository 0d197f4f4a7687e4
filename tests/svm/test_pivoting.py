"""Small dense linear algebra: roots of inverses, and whether a matrix is positive definite."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn.svm import pivoting


def gram(rank: int = 6) -> np.ndarray:
    """Return a Gram matrix of six vectors in so many dimensions, of very different lengths."""
    vectors = np.random.default_rng(0).normal(size=(6, rank)) * np.logspace(-4, 4, 6)[:, None]
    return vectors @ vectors.T


def test_a_root_of_the_inverse_is_lower_triangular_and_inverts():
    matrices = jnp.asarray(np.stack([gram(), np.eye(6)]))
    roots = jax.vmap(pivoting.inverse_root)(matrices)
    assert not np.triu(roots, 1).any()
    np.testing.assert_allclose(roots @ matrices @ roots.mT, np.stack([np.eye(6)] * 2), atol=1e-12)


def test_of_two_equal_rows_of_a_gram_matrix_the_second_is_left_out():
    twice = np.repeat(gram(), 2, axis=0).repeat(2, axis=1)
    root = np.asarray(pivoting.inverse_root(jnp.asarray(twice)))
    assert not root[1::2].any()
    assert (np.diagonal(root)[::2] > 0).all()


def test_what_is_positive_definite_is_told_at_every_scale():
    posed = jnp.asarray(np.stack([gram(), gram(rank=5), -gram(), gram() - 1e9 * np.eye(6), 1e-30 * np.eye(6)]))
    assert jax.vmap(pivoting.is_positive_definite)(posed).tolist() == [True, False, False, False, True]


def test_the_diagonal_of_a_tableau():
    tableau = np.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(pivoting.diagonal(jnp.asarray(tableau)), np.diagonal(tableau))
