"""Internal: small dense linear algebra as plain array code, for `vmap`.

Batched LAPACK calls that do not depend on each other are avoided. XLA's CPU thread pool runs them together, each waits
inside the pool for its own batch, and with two threads they can deadlock (seen with jaxlib 0.10.2: QR, SVD and
triangular solves in one program).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm import stacked

# A function that takes either kind of array returns the kind that it was given, which no union can say.
if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = Array | np.ndarray
# The axes of a problem's rows and of a matrix. NumPy arrays may have lanes in front of them.
LAST = (-2, -1)
# At most this many rows of a matrix are eliminated one by one; what they change in the others is one product. So a
# matrix of 42 rows is factored two to three times as fast, and one of 112 rows four times.
_PANEL = 32


def module_of(*arrays: Any) -> Any:
    """Return `numpy` if all arrays are NumPy's, else `jax.numpy`."""
    return np if all(isinstance(array, np.ndarray) for array in arrays) else jnp


def positive(x: Float[AnyArray, "..."]) -> Float[AnyArray, "..."]:
    """Return x, with 1 in place of entries that are not above 0, for use as a divisor."""
    return module_of(x).where(x > 0, x, 1.0)


def pivot(tableau: Float[AnyArray, "a b"], k: Any) -> Float[AnyArray, "a b"]:
    """Exchange the k-th unknown with the k-th equation of `y = tableau x` (principal pivot transform).

    A second exchange undoes the first; exchanging all k inverts a square tableau.
    """
    xp = module_of(tableau)
    row, column, corner = tableau[k], tableau[:, k], tableau[k, k]
    in_row = xp.arange(column.size)[:, None] == k
    in_column = xp.arange(row.size)[None, :] == k
    new = tableau - xp.outer(column, row / corner)
    new = xp.where(in_column, column[:, None] / corner, new)
    return xp.where(in_row, xp.where(in_column, 1.0, -row[None, :]) / corner, new)


def orthonormal(vectors: Float[AnyArray, "*lanes k d"]) -> Float[AnyArray, "*lanes d k"]:
    """Return orthonormal columns that span the given rows, k <= d (Gram-Schmidt with two passes).

    A row that depends on earlier ones, to rounding, gives a zero column, or any one for NumPy arrays.
    """
    if isinstance(vectors, np.ndarray):
        return np.linalg.qr(vectors.mT)[0]
    eps = jnp.finfo(vectors.dtype).eps

    def add(k: Int[Array, ""], basis: Float[Array, "d k"]) -> Float[Array, "d k"]:
        rest = vectors[k]
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        length = jnp.linalg.norm(rest)
        independent = length > 64 * eps * jnp.linalg.norm(vectors[k])
        return basis.at[:, k].set(jnp.where(independent, rest / jnp.where(independent, length, 1.0), 0.0))

    return jax.lax.fori_loop(0, vectors.shape[0], add, jnp.zeros_like(vectors.T))


def after(first: Any, then: Float[AnyArray, "..."]) -> Float[AnyArray, "..."]:
    """Return `then`, made to depend on `first`, so that LAPACK calls on them run one after the other.

    `first` must be finite. NumPy arrays, of which all calls run one after the other, are returned as they are.
    """
    return then if isinstance(then, np.ndarray) else then + 0.0 * jnp.sum(first)


def diagonal(tableau: Float[AnyArray, "*stack a b"]) -> Float[AnyArray, "*stack a"]:
    """Return the entries (k, k); requires a <= b.

    `jnp.diagonal` would be lowered separately for each platform: a tenth of the time to trace a solver's step.
    """
    *stack, a, b = tableau.shape
    return tableau.reshape(*stack, a * b)[..., : a * b : b + 1]


def with_more(
    matrix: Float[AnyArray, "*lanes a a"], more: Float[AnyArray, "*lanes a"]
) -> Float[AnyArray, "*lanes a a"]:
    """Return a matrix with more on its diagonal; a NumPy array is changed."""
    if not isinstance(matrix, np.ndarray):
        return matrix + jnp.diag(more)
    diagonal(matrix)[...] += more
    return matrix


def per_lane(leaves: Any, of: Float[Array, "..."]) -> Any:
    """Return the leaves unchanged in value, but batched under `vmap` wherever the array `of` is.

    `vmap` retraces the body of a loop whenever a part of the state that is the same for all lanes at the start differs
    between lanes after a step. This avoids the retracing and leaves no trace in the compiled program.
    """
    told = of.ravel()[0] == 0
    return jax.tree.map(lambda leaf: jax.lax.select(told, leaf, leaf), leaves)


def cholesky(
    symmetric: Float[Array, "a a"], least: Float[Array, " a"] | None = None
) -> tuple[Float[Array, "a a"], Float[Array, " a"]]:
    """Return the lower triangular L with `L L^T` equal to the matrix, and its pivots.

    A pivot at or below rounding level gives a zero column. For a positive semidefinite matrix this loses nothing. A
    matrix has a negative eigenvalue, beyond rounding, if and only if some pivot is negative beyond rounding. `least` is
    the rounding level of each pivot, by default that of the largest one.
    """
    if least is None:
        largest = jnp.max(_rounding(symmetric))
        least = jnp.broadcast_to(largest, symmetric.shape[:1])
    first = _panel(symmetric)
    upper, pivots = _eliminated(symmetric[:first], least[:first])
    if first == len(symmetric):
        return upper.T, pivots
    beside = upper[:, first:]
    rest, more = cholesky(symmetric[first:, first:] - beside.T @ beside, least[first:])
    return _lower(upper[:, :first].T, beside.T, rest), jnp.concatenate([pivots, more])


def inverse_of_lower(L: Float[Array, "a a"]) -> Float[Array, "a a"]:
    """Return the inverse of a lower triangular matrix, with a zero row for each zero on its diagonal."""
    first = _panel(L)
    if first == len(L):
        return _inverse_of_lower(L)
    upper, rest = _inverse_of_lower(L[:first, :first]), inverse_of_lower(L[first:, first:])
    return _lower(upper, -rest @ (L[first:, :first] @ upper), rest)


def _panel(matrix: Float[Array, "a a"]) -> int:
    """Return how many rows to eliminate one by one, such that all panels are about equal."""
    panels = max(1, -(-len(matrix) // _PANEL))
    return -(-len(matrix) // panels)


def _lower(first: Float[Array, "a a"], beside: Float[Array, "b a"], rest: Float[Array, "b b"]) -> Array:
    """Return a lower triangular matrix from its blocks."""
    return jnp.block([[first, jnp.zeros_like(beside.T)], [beside, rest]])


def _inverse_of_lower(L: Float[Array, "a a"]) -> Float[Array, "a a"]:
    index = jnp.arange(L.shape[0])

    def row(inverse: Array, here: tuple[Array, Array, Array]) -> tuple[Array, None]:
        k, entries, corner = here
        unit = (index == k).astype(L.dtype)
        found = jnp.where(corner != 0, (unit - entries @ inverse) / jnp.where(corner != 0, corner, 1.0), 0.0)
        return jax.lax.dynamic_update_index_in_dim(inverse, found, k, 0), None

    return jax.lax.scan(row, per_lane(jnp.zeros_like(L), L), (index, L, diagonal(L)))[0]


def inverse_root(symmetric: Float[AnyArray, "*lanes a a"]) -> Float[AnyArray, "*lanes a a"]:
    """Return the lower triangular R with `R^T R` equal to the inverse of a positive definite matrix.

    The matrix is positive definite, beyond rounding, if and only if the diagonal of R is positive. A pivot at rounding
    level gives a zero row of R, which excludes the second of two equal rows of a Gram matrix. With a negative pivot R
    is meaningless. Unlike an explicit inverse, `R^T R` stays positive definite for a nearly singular matrix, and small
    eigenvalues of the inverse are not lost beside large ones.
    """
    if isinstance(symmetric, np.ndarray):
        return stacked.inverse_root(symmetric, _rounding(symmetric))
    return _inverse_root(symmetric, _rounding(symmetric))


def _inverse_root(symmetric: Float[Array, "a a"], least: Float[Array, " a"]) -> Float[Array, "a a"]:
    first = _panel(symmetric)
    both = jnp.concatenate([symmetric[:first], jnp.eye(first, dtype=symmetric.dtype)], axis=1)
    beside, root = jnp.split(_eliminated(both, least[:first])[0][:, first:], [len(symmetric) - first], axis=1)
    if first == len(symmetric):
        return root
    rest = _inverse_root(symmetric[first:, first:] - beside.T @ beside, least[first:])
    return _lower(root, -rest @ (beside.T @ root), rest)


def _eliminated(rows: Float[Array, "a b"], least: Float[Array, " a"]) -> tuple[Float[Array, "a b"], Float[Array, " a"]]:
    """Return rows after Gaussian elimination by their first columns, a symmetric matrix, and its pivots.

    Each row is divided by the root of its pivot: the matrix becomes its Cholesky factor L^T, and what stands beside it
    is multiplied by the inverse of L. A row whose pivot is at most `least` becomes zero.
    """
    index = jnp.arange(rows.shape[1])

    # Row by row, each by one product with the rows before it: three times as fast as updating the remaining matrix.
    def row(done: Array, here: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        k, entries, level = here
        left = entries - jax.lax.dynamic_index_in_dim(done, k, 1, keepdims=False) @ done
        pivot = jax.lax.dynamic_index_in_dim(left, k, keepdims=False)
        scale = jnp.where(pivot > level, 1 / jnp.sqrt(jnp.abs(pivot)), 0.0)
        found = jnp.where(index >= k, scale * left, 0.0)
        return jax.lax.dynamic_update_index_in_dim(done, found, k, 0), pivot

    return jax.lax.scan(row, per_lane(jnp.zeros_like(rows), rows), (index[: rows.shape[0]], rows, least))


def is_positive_definite(symmetric: Float[AnyArray, "*stack a a"]) -> Bool[AnyArray, "*stack"]:
    """Return whether each matrix is positive definite, by more than rounding."""
    least = _rounding(symmetric)
    if isinstance(symmetric, np.ndarray):
        return stacked.is_positive_definite(symmetric, least)
    if symmetric.ndim > 2:
        return jax.vmap(is_positive_definite)(symmetric)
    return (cholesky(symmetric, least)[1] > least).all()


def _rounding(symmetric: Float[AnyArray, "*stack a a"]) -> Float[AnyArray, "*stack a"]:
    """Return the rounding level of each pivot, from the diagonal entry that it is a remainder of."""
    return 4 * float(jnp.finfo(symmetric.dtype).eps) * abs(diagonal(symmetric))
