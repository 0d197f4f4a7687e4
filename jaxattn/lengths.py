"""Internal: the Euclidean norm of all entries of an array, used by norms, metrics and certificates."""

from __future__ import annotations

from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AnyArray = TypeVar("AnyArray", Array, np.ndarray)


def norm(A: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries, (), without underflow or overflow of their squares.

    Raises:
        ValueError: weights that are not a matrix, or another named tuple.

    Example:
        >>> bool(jnp.isclose(metrics.norm(jnp.array([3e200, 4e200])), 5e200, rtol=1e-12))
        True
    """
    if hasattr(A, "_fields"):
        raise ValueError(f"norm: expected an array, found {type(A).__name__}")
    A = jnp.asarray(A)
    return euclidean(A, tuple(range(A.ndim)))


def euclidean(A: Float[AnyArray, "..."], axes: tuple[int, ...] = (-2, -1)) -> Float[AnyArray, "..."]:
    """Return `norm` over some axes of an array, by default that of each matrix; of JAX or NumPy, as the array is."""
    xp: Any = np if isinstance(A, np.ndarray) else jnp
    largest = xp.max(xp.abs(A), axis=axes, keepdims=True)
    scale = xp.where(largest > 0, largest, 1.0)
    return xp.squeeze(scale, axes) * xp.sqrt(xp.sum((A / scale) ** 2, axis=axes))
