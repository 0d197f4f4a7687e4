"""Small dense linear algebra as plain array code, for `vmap`.

Batched LAPACK calls are avoided where two of them could run at once: XLA's CPU thread pool runs
independent ones together, each waits inside the pool for its own batch, and with two threads they
can wait for ever (seen with jaxlib 0.10.2: QR, SVD and triangular solves in one program).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def positive(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return x, or 1 in place of what is not above 0: a divisor that leaves 0/0 at 0."""
    return jnp.where(x > 0, x, 1.0)


def pivot(tableau: Float[Array, "a b"], k: Int[Array, ""]) -> Float[Array, "a b"]:
    """Exchange the k-th unknown with the k-th equation of `y = tableau x` (principal pivot transform).

    Doing it again undoes it; doing it for every k inverts a square tableau.
    """
    row, column, corner = tableau[k], tableau[:, k], tableau[k, k]
    in_row = jnp.arange(column.size)[:, None] == k
    in_column = jnp.arange(row.size)[None, :] == k
    new = tableau - jnp.outer(column, row / corner)
    new = jnp.where(in_column, column[:, None] / corner, new)
    return jnp.where(in_row, jnp.where(in_column, 1.0, -row[None, :]) / corner, new)


def orthonormal(vectors: Float[Array, "k d"]) -> Float[Array, "d k"]:
    """Return orthonormal columns that span the given rows (Gram and Schmidt, twice).

    A row that depends on those before it, to rounding, gives a zero column.
    """
    eps = jnp.finfo(vectors.dtype).eps

    def add(k: Int[Array, ""], basis: Float[Array, "d k"]) -> Float[Array, "d k"]:
        rest = vectors[k]
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        length = jnp.linalg.norm(rest)
        independent = length > 64 * eps * jnp.linalg.norm(vectors[k])
        return basis.at[:, k].set(jnp.where(independent, rest / jnp.where(independent, length, 1.0), 0.0))

    return jax.lax.fori_loop(0, vectors.shape[0], add, jnp.zeros_like(vectors.T))


def after(first: Float[Array, "..."], then: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `then`, made to depend on `first`, so that LAPACK calls on them run one after the other.

    `first` must be finite.
    """
    return then + 0.0 * jnp.sum(first)


def cholesky(symmetric: Float[Array, "a a"]) -> tuple[Float[Array, "a a"], Float[Array, " a"]]:
    """Return the lower triangular L with `L L^T` the matrix, and its pivots.

    A pivot that is not above rounding level gives a column of zeros: of a positive semidefinite matrix nothing is lost
    so; another one is not positive definite if and only if a pivot is negative beyond rounding.
    """
    index = jnp.arange(symmetric.shape[0])
    least = 4 * jnp.finfo(symmetric.dtype).eps * jnp.max(jnp.abs(jnp.diagonal(symmetric)))

    # One product with what is there already for each column: three times as fast as to update all that is left.
    def column(k: Int[Array, ""], now: tuple[Array, Array]) -> tuple[Array, Array]:
        L, pivots = now
        left = symmetric[:, k] - L @ L[k]
        found = jnp.where(left[k] > least, left / jnp.sqrt(positive(left[k])), 0.0)
        return L.at[:, k].set(jnp.where(index >= k, found, 0.0)), pivots.at[k].set(left[k])

    return jax.lax.fori_loop(0, index.size, column, (jnp.zeros_like(symmetric), jnp.zeros_like(symmetric[0])))


def inverse_of_lower(L: Float[Array, "a a"]) -> Float[Array, "a a"]:
    """Return the inverse of a lower triangular matrix without zeros on its diagonal."""

    def row(k: Int[Array, ""], inverse: Float[Array, "a a"]) -> Float[Array, "a a"]:
        unit = (jnp.arange(L.shape[0]) == k).astype(L.dtype)
        return inverse.at[k].set((unit - L[k] @ inverse) / L[k, k])

    return jax.lax.fori_loop(0, L.shape[0], row, jnp.zeros_like(L))


def inverse_root(symmetric: Float[Array, "a a"]) -> tuple[Float[Array, "a a"], Float[Array, " a"]]:
    """Return the lower triangular R with `R^T R` the inverse of a positive definite matrix, and its pivots.

    The matrix is positive definite, to rounding, if and only if all pivots are positive. A pivot at
    rounding level is reported as 0, and its row of R is 0: of two equal rows of a Gram matrix the second
    is left out so. With a negative one R means nothing. Unlike an inverse formed by itself, `R^T R` stays
    positive definite for a matrix that is nearly singular, and small eigenvalues of the inverse are not
    lost beside large ones.
    """
    index = jnp.arange(symmetric.shape[0])
    least = 4 * jnp.finfo(symmetric.dtype).eps * jnp.diagonal(symmetric)

    def eliminate(k: Int[Array, ""], now: Float[Array, "a a"]) -> Float[Array, "a a"]:
        # On and above the diagonal what Gaussian elimination leaves, below it the factor's inverse.
        row, below = now[k], index > k
        factor = jnp.where(below & (row[k] > least[k]), now[:, k] / row[k], 0.0)
        at_k = (index == k)[None, :]
        return jnp.where(at_k, jnp.where(below[:, None], -factor[:, None], now), now - jnp.outer(factor, row))

    done = jax.lax.fori_loop(0, index.size, eliminate, symmetric)
    pivots = jnp.diagonal(done)
    lower = jnp.where(index[:, None] > index[None, :], done, 0.0) + jnp.eye(index.size, dtype=done.dtype)
    pivots = jnp.where(jnp.abs(pivots) > least, pivots, 0.0)
    return jnp.where(pivots > 0, 1 / jnp.sqrt(positive(pivots)), 0.0)[:, None] * lower, pivots
