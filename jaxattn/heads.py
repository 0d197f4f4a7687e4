"""Prediction heads `h`: from one attention output to one number.

A head is any pure function `head(x, v)` with `x` the attention output, (d,), and `v` the problem's
head direction, (d,); `losses.risk` lifts it over the inputs. A head with numbers of its own is a
small frozen dataclass with `__call__`, so that equal heads are equal values and compile once.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

Head = Callable[[Float[Array, " d"], Float[Array, " d"]], Float[Array, ""]]


def linear(x: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, ""]:
    """The fixed linear head `h(x) = v . x` (2308.16898, section 2)."""
    return jnp.vdot(v, x)
