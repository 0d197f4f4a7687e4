"""Mirror descent with the potential `||W||_p^p / p` of all entries, normalized."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxattn import checks, norms
from jaxattn.descent.optimizers import ScaleFree
from jaxattn.descent.steepest import direction

__all__ = ["mirror"]


class MirrorState(NamedTuple):
    """The slope of the potential at the weights, `sign(W) |W|^(p-1)`, and how many steps were taken."""

    slope: Any
    taken: Int[Array, ""]


@lru_cache(maxsize=64)
def mirror(p: float, step: float | Callable[[Any], Any]) -> ScaleFree:
    """Return normalized mirror descent with the potential `||W||_p^p / p` (2410.14581, l_p-AttGD).

    `sign(W) |W|^(p-1)` moves by `-step G / ||G||_F`, G the gradient: W, or K and Q each by its own. With p = 2 it is
    normalized descent. The paper's rule has G in place of `G / ||G||_F`, and so stalls as the softmax saturates. The
    state holds `sign(W) |W|^(p-1)`, which is exact also where its slope in W is infinite or zero, as at W = 0.

    After k steps W is as long as `(k step)^(1 / (p - 1))`: with p near 1 it soon outgrows any number (p = 1.03 has an
    exponent of 33), with a large p it grows slowly. A schedule sets another pace.

    Args:
        p: above 1 and finite.
        step: the Frobenius length of every step of `sign(W) |W|^(p-1)`; or a schedule.

    Raises:
        ValueError: a p outside (1, inf), or a step that is no positive number and no schedule.

    Example:
        >>> run = descent.train(start, problem, optimizer=descent.mirror(3.0, 0.1), steps=10)
    """
    is_number = not isinstance(p, bool) and hasattr(p, "__float__")
    if not (is_number and 1 < float(p) < float("inf")):
        raise ValueError(f"p: expected a number above 1, found {p!r}")
    checks.step_or_schedule("step", step)

    def init(params: optax.Params) -> MirrorState:
        slope = jax.tree.map(lambda W: jnp.sign(W) * jnp.abs(W) ** (p - 1), params)
        return MirrorState(slope, jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, MirrorState]:
        length = step(state.taken) if callable(step) else step
        directions = jax.tree.map(partial(direction, norms.frobenius), updates)
        slope = jax.tree.map(lambda at, D: at - jnp.asarray(length, at.dtype) * D, state.slope, directions)
        # From the slope anew in every step: no rounding error of the sums that make W is kept.
        moves = jax.tree.map(lambda at, W: jnp.sign(at) * jnp.abs(at) ** (1 / (p - 1)) - W, slope, params)
        return moves, MirrorState(slope, state.taken + 1)

    return ScaleFree(init, update)
