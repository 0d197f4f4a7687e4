"""Internal: factors of stacks of symmetric matrices in NumPy, the host's form of `pivoting`.

No matrix of a stack affects another's result in any bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import get_lapack_funcs

# The largest matrices that are tried together. What is done with a matrix must not depend on how many there are.
_SMALL = 12


def inverse_root(
    symmetric: Float[np.ndarray, "lanes a a"], least: Float[np.ndarray, "lanes a"]
) -> Float[np.ndarray, "lanes a a"]:
    """Return R as `pivoting.inverse_root`; `least` is the rounding level of each pivot.

    R of a singular matrix is lower triangular only up to the order of its rows and columns.
    """
    # NumPy has no inverse of triangles, and its Cholesky fails for all matrices if it does for one.
    factor, pivoted, invert = get_lapack_funcs(("potrf", "pstrf", "trtri"), (symmetric,))
    R, singular = symmetric.copy(), np.zeros(len(symmetric), bool)
    for k, matrix in enumerate(R):
        # LAPACK's columns are rows here: an upper triangle is a lower one.
        upper, stopped = factor(matrix.T, overwrite_a=True)
        singular[k] = stopped > 0
        R[k] = invert(upper, overwrite_c=True)[0].T
    singular |= (least * np.diagonal(R, axis1=-2, axis2=-1) ** 2 >= 1).any(axis=-1)
    for k in np.flatnonzero(singular):
        R[k] = _of_singular(pivoted, invert, symmetric[k], least[k])
    return R


def _of_singular(pivoted: Any, invert: Any, matrix: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return R with a zero row for each pivot that is at most `least`, the largest pivots first."""
    # Scaled so that all pivots have one rounding level. A row without one is without a diagonal entry.
    scale = 1 / np.sqrt(np.where(least > 0, least, np.inf))
    upper, order, rank, _ = pivoted(scale[:, None] * matrix * scale, tol=1.0)
    kept, R = order[:rank] - 1, np.zeros_like(matrix)
    if not rank:
        return R
    R[np.ix_(kept, kept)] = invert(np.triu(upper[:rank, :rank]))[0].T * scale[kept]
    return R


def is_positive_definite(
    symmetric: Float[np.ndarray, "*stack a a"], least: Float[np.ndarray, "*stack a"]
) -> Bool[np.ndarray, "*stack"]:
    """Return whether the pivots of each matrix are above their rounding level."""
    if symmetric.shape[-1] > _SMALL:
        (factor,) = get_lapack_funcs(("potrf",), (symmetric,))
        found = np.empty(symmetric.shape[:-2], bool)
        for k in np.ndindex(found.shape):
            root, stopped = factor(symmetric[k], clean=False)
            found[k] = stopped == 0 and (np.diagonal(root) ** 2 > least[k]).all()
        return found
    # For many small matrices NumPy's own loops, over the stack as the last axis, are as fast as LAPACK.
    rest = np.moveaxis(symmetric, (-2, -1), (0, 1)).copy()
    least, above = np.moveaxis(least, -1, 0), np.ones(symmetric.shape[:-2], bool)
    for k in range(len(rest)):
        above &= rest[k, k] > least[k]
        rest[k + 1 :, k + 1 :] -= rest[k + 1 :, k, None] * (rest[k, k + 1 :] / rest[k, k])
    return above
