"""Schedule-free optimizers, which average their steps, along the direction of a gradient that may underflow."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxattn import descent

# The share of the average in the weights at which gradients are taken, as in `optax.contrib.schedule_free`.
_AVERAGE = 0.9


class _State(NamedTuple):
    """The number of steps taken, the base optimizer's own weights, and its state."""

    taken: Int[Array, ""]
    own: Any
    base: Any


def schedule_free(base: optax.GradientTransformation) -> descent.ScaleFree:
    """Return `optax.contrib.schedule_free` of an optimizer with a constant step that ignores the gradient's scale.

    That of optax holds a NaN as a constant, which `ScaleFree` takes for a step that depends on the scale.

    Example:
        >>> optimizer = schedule_free(descent.steepest("frobenius", 0.1))
    """

    def init(params: Any) -> _State:
        return _State(jnp.zeros((), int), params, base.init(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, _State]:
        moves, inner = base.update(updates, state.base, params)
        own = jax.tree.map(jnp.add, state.own, moves)
        taken = state.taken + 1

        def moved(at: Array, before: Array, now: Array) -> Array:
            average = (at - (1 - _AVERAGE) * before) / _AVERAGE
            return _AVERAGE * (average + (now - average) / taken) + (1 - _AVERAGE) * now - at

        return jax.tree.map(moved, params, state.own, own), _State(taken, own, inner)

    return descent.ScaleFree(init, update)
