"""A loss with a heavy tail."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def heavy_tail(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return `1 / (1 + x)` for a margin x >= 0, and `1 - x`, its tangent at 0, for x < 0.

    It is strictly decreasing; its derivative, `-1 / (1 + x)^2` or -1, is bounded and Lipschitz.
    """
    # The branch not taken must not divide by zero, nor must its derivative.
    inside = jnp.maximum(margin, 0)
    return jnp.where(margin > 0, 1 / (1 + inside), 1 - margin)
