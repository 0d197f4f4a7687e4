"""Internal: small dense linear algebra as plain array code, for `vmap`.

Batched LAPACK calls are avoided where two of them could run at once: XLA's CPU thread pool runs
independent ones together, each waits inside the pool for its own batch, and with two threads they
can wait for ever (seen with jaxlib 0.10.2: QR, SVD and triangular solves in one program).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


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


def diagonal(tableau: Float[Array, "a b"]) -> Float[Array, " a"]:
    """Return the entries (k, k); a <= b.

    `jnp.diagonal` is written out once for every platform: a tenth of what a step of a solver takes to trace.
    """
    a, b = tableau.shape
    return tableau.ravel()[: a * b : b + 1]


def per_lane(leaves: Any, of: Float[Array, "..."]) -> Any:
    """Return the leaves as they are, each as much an array of one lane under `vmap` as the array `of` is.

    `vmap` traces a loop's body once more for each time it finds that a part of the state, the same for all lanes at
    the start, differs between them after a step. Nothing is left of this in the compiled program.
    """
    told = of.ravel()[0] == 0
    return jax.tree.map(lambda leaf: jax.lax.select(told, leaf, leaf), leaves)


def cholesky(
    symmetric: Float[Array, "a a"], least: Float[Array, " a"] | None = None
) -> tuple[Float[Array, "a a"], Float[Array, " a"]]:
    """Return the lower triangular L with `L L^T` the matrix, and its pivots.

    A pivot that is not above rounding level gives a column of zeros: of a positive semidefinite matrix nothing is lost
    so; another one is not positive definite if and only if a pivot is negative beyond rounding.

    Args:
        symmetric: the matrix.
        least: the rounding level of each pivot, not negative; that of the largest if None.
    """
    if least is None:
        largest = jnp.max(_rounding(symmetric))
        least = jnp.broadcast_to(largest, symmetric.shape[:1])
    index = jnp.arange(symmetric.shape[0])

    # Row by row of L^T, one product with the rows that are there already for each: three times as fast as to update
    # all that is left.
    def row(upper: Array, here: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        k, entries, level = here
        left = entries - jax.lax.dynamic_index_in_dim(upper, k, 1, keepdims=False) @ upper
        pivot = jax.lax.dynamic_index_in_dim(left, k, keepdims=False)
        scale = jnp.where(pivot > level, 1 / jnp.sqrt(jnp.abs(pivot)), 0.0)
        found = jnp.where(index >= k, scale * left, 0.0)
        return jax.lax.dynamic_update_index_in_dim(upper, found, k, 0), pivot

    upper, pivots = jax.lax.scan(row, per_lane(jnp.zeros_like(symmetric), symmetric), (index, symmetric, least))
    return upper.T, pivots


def inverse_of_lower(L: Float[Array, "a a"]) -> Float[Array, "a a"]:
    """Return the inverse of a lower triangular matrix; where it has 0 on its diagonal, a row of zeros."""
    index = jnp.arange(L.shape[0])

    def row(inverse: Array, here: tuple[Array, Array, Array]) -> tuple[Array, None]:
        k, entries, corner = here
        unit = (index == k).astype(L.dtype)
        found = jnp.where(corner != 0, (unit - entries @ inverse) / jnp.where(corner != 0, corner, 1.0), 0.0)
        return jax.lax.dynamic_update_index_in_dim(inverse, found, k, 0), None

    return jax.lax.scan(row, per_lane(jnp.zeros_like(L), L), (index, L, diagonal(L)))[0]


def inverse_root(symmetric: Float[Array, "a a"]) -> Float[Array, "a a"]:
    """Return the lower triangular R with `R^T R` the inverse of a positive definite matrix.

    The matrix is positive definite, beyond rounding, if and only if the diagonal of R is positive. Where a pivot is at
    rounding level its row of R is 0: of two equal rows of a Gram matrix the second is left out so. With a negative one
    R means nothing. Unlike an inverse formed by itself, `R^T R` stays positive definite for a matrix that is nearly
    singular, and small eigenvalues of the inverse are not lost beside large ones.
    """
    return inverse_of_lower(cholesky(symmetric, _rounding(symmetric))[0])


def is_positive_definite(symmetric: Float[Array, "a a"]) -> Bool[Array, ""]:
    """Whether a matrix is positive definite, by more than rounding."""
    least = _rounding(symmetric)
    return (cholesky(symmetric, least)[1] > least).all()


def _rounding(symmetric: Float[Array, "a a"]) -> Float[Array, " a"]:
    """Return the rounding level of each pivot, from the entry that it is what is left of."""
    return 4 * jnp.finfo(symmetric.dtype).eps * jnp.abs(diagonal(symmetric))
