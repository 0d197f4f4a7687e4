"""A loss with a heavy tail."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def heavy_tail(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `1 / (1 + x)` of a margin x of at least 0, and `1 - x` below, where it goes on with the same slope.

    It is strictly decreasing; its derivative, `-1 / (1 + x)^2` or -1, is bounded and Lipschitz.
    """
    # The other branch must not divide by zero, nor its derivative.
    inside = jnp.maximum(margin, 0)
    return jnp.where(margin > 0, 1 / (1 + inside), 1 - margin)
