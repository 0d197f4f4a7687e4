"""Mirror descent with the entrywise potential `||W||_p^p / p`, without normalization: l_p-AttGD."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxattn import checks
from jaxattn.descent.mirror import MirrorState
from jaxattn.descent.optimizers import Exact

__all__ = ["lp_gd"]


@lru_cache(maxsize=64)
def lp_gd(p: float, step: float) -> Exact:
    """Return mirror descent with the potential `||W||_p^p / p`, not normalized (2410.14581, l_p-AttGD).

    The mirror weights `sign(W) |W|^(p-1)` move by `-step G`, G the gradient; K and Q each with its own. With p = 2 it
    is `gd`. The gradient is exact to rounding until it underflows, and W grows like `log k`. `mirror`, the same rule on
    the gradient's direction, gets much farther in the same number of steps.

    Args:
        p: the exponent, above 1 and finite.
        step: the step size, positive and finite.

    Raises:
        ValueError: p outside (1, inf), or a step that is not a positive number.

    Example:
        >>> from jaxattn.descent.lp_gd import lp_gd
        >>> run = descent.train(start, problem, optimizer=lp_gd(3.0, 0.1), steps=10)
    """
    is_number = not isinstance(p, bool) and hasattr(p, "__float__")
    if not (is_number and 1 < float(p) < float("inf")):
        raise ValueError(f"p: expected a number above 1, found {p!r}")
    checks.positive("step", step)

    def init(params: optax.Params) -> MirrorState:
        slope = jax.tree.map(lambda W: jnp.sign(W) * jnp.abs(W) ** (p - 1), params)
        return MirrorState(slope, jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, MirrorState]:
        slope = jax.tree.map(lambda at, G: at - jnp.asarray(step, at.dtype) * G, state.slope, updates)
        # Recompute W from the mirror weights in every step, so that rounding errors do not accumulate in W.
        moves = jax.tree.map(lambda at, W: jnp.sign(at) * jnp.abs(at) ** (1 / (p - 1)) - W, slope, params)
        return moves, MirrorState(slope, state.taken + 1)

    return Exact(init, update)
