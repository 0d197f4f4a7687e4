"""The loss of the second paper as printed, and with the sign of its margin reversed."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float


def printed(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """`1 / (1 + exp(-x))`, which rises with the margin (Definitions 3.5 and 3.6)."""
    return jax.nn.sigmoid(margin)


def turned(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """`1 / (1 + exp(x))`, the same function of minus the margin, which falls."""
    return jax.nn.sigmoid(-margin)
