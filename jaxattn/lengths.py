"""Internal: the Euclidean norm of all entries of an array, used by norms and metrics."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def norm(A: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries, (), without underflow or overflow of their squares.

    Example:
        >>> bool(jnp.isclose(metrics.norm(jnp.array([3e200, 4e200])), 5e200, rtol=1e-12))
        True
    """
    largest = jnp.max(jnp.abs(A))
    scale = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.sqrt(jnp.sum((A / scale) ** 2))
