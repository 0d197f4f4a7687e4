"""Internal: factors of stacks of symmetric matrices in NumPy, the host's form of `pivoting`.

No matrix of a stack affects another's result in any bit.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import get_lapack_funcs


def inverse_root(
    symmetric: Float[np.ndarray, "lanes a a"], least: Float[np.ndarray, "lanes a"]
) -> Float[np.ndarray, "lanes a a"]:
    """Return R as `pivoting.inverse_root`; `least` is the rounding level of each pivot."""
    # NumPy has no inverse of triangles, and its Cholesky fails for all matrices if it does for one.
    factor, invert = get_lapack_funcs(("potrf", "trtri"), (symmetric,))
    R, singular = symmetric.copy(), np.zeros(len(symmetric), bool)
    for k, matrix in enumerate(R):
        # LAPACK's columns are rows here: an upper triangle is a lower one.
        upper, stopped = factor(matrix.T, overwrite_a=True)
        singular[k] = stopped > 0
        R[k] = invert(upper, overwrite_c=True)[0].T
    singular |= (least * np.diagonal(R, axis1=-2, axis2=-1) ** 2 >= 1).any(axis=-1)
    if singular.any():
        R[singular] = _inverse_root_by_elimination(symmetric[singular], least[singular])
    return R


def _inverse_root_by_elimination(symmetric: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return R, with a zero row for each pivot that is at most `least`, where LAPACK would stop."""
    a = symmetric.shape[-1]
    rows = np.concatenate([symmetric, np.broadcast_to(np.eye(a, dtype=symmetric.dtype), symmetric.shape)], axis=-1)
    for k in range(a):
        pivot = rows[:, k, k, None]
        rows[:, k] *= np.where(pivot > least[:, k, None], 1 / np.sqrt(np.abs(pivot)), 0.0)
        rows[:, k + 1 :] -= rows[:, k, k + 1 : a, None] * rows[:, k, None]
    return rows[..., a:]


def is_positive_definite(
    symmetric: Float[np.ndarray, "*stack a a"], least: Float[np.ndarray, "*stack a"]
) -> Bool[np.ndarray, "*stack"]:
    """Return whether the pivots of each matrix are above their rounding level."""
    # For many small matrices NumPy's own loops, over the stack as the last axis, are as fast as LAPACK.
    rest = np.moveaxis(symmetric, (-2, -1), (0, 1)).copy()
    least, above = np.moveaxis(least, -1, 0), np.ones(symmetric.shape[:-2], bool)
    for k in range(len(rest)):
        above &= rest[k, k] > least[k]
        rest[k + 1 :, k + 1 :] -= rest[k + 1 :, k, None] * (rest[k, k + 1 :] / rest[k, k])
    return above
