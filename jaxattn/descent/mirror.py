"""Mirror descent with the entrywise potential `||W||_p^p / p`: `mirror` on the gradient's direction, `lp_gd` plain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxattn import checks, norms
from jaxattn.checks import Number
from jaxattn.descent.optimizers import Exact, ScaleFree, pickled_as_made
from jaxattn.descent.steepest import direction

__all__ = ["lp_gd", "mirror"]


class MirrorState(NamedTuple):
    """The mirror weights `sign(W) |W|^(p-1)` (the gradient of the potential), and the number of steps taken."""

    slope: Any
    taken: Int[Array, ""]


@pickled_as_made
def mirror(p: Number, step: Number | Callable[[Any], Any]) -> ScaleFree:
    """Return normalized mirror descent with the potential `||W||_p^p / p` (2410.14581, l_p-AttGD).

    The mirror weights `sign(W) |W|^(p-1)` move by `-step G / ||G||_F`, G the gradient; K and Q each with its own. With
    p = 2 it is normalized descent. The paper's rule, `lp_gd`, moves by `-step G`, and so stalls as the softmax
    saturates. The state holds the mirror weights, which are exact also where their derivative in W is infinite or zero,
    as at W = 0.

    After k steps the length of W is about `(k step)^(1 / (p - 1))`. For p near 1 it soon overflows (p = 1.03 has the
    exponent 33); for large p it grows slowly. A schedule changes the pace.

    Args:
        p: the exponent, above 1 and finite.
        step: the Frobenius length of each step of the mirror weights, or a schedule.

    Raises:
        ValueError: p outside (1, inf), or a step that is neither a positive number nor a schedule.

    Example:
        >>> run = descent.train(start, problem, optimizer=descent.mirror(3.0, 0.1), steps=10)
    """
    checks.number("p", p, "a number above 1", _is_exponent)
    checks.step_or_schedule("step", step)

    def moved(state: MirrorState, gradient: Any) -> Any:
        length = step(state.taken) if callable(step) else step
        directions = jax.tree.map(partial(direction, norms.frobenius), gradient)
        return jax.tree.map(lambda at, D: at - jnp.asarray(length, at.dtype) * D, state.slope, directions)

    return ScaleFree(*_mirrored(p, moved))


@pickled_as_made
def lp_gd(p: Number, step: Number) -> Exact:
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
        >>> run = descent.train(start, problem, optimizer=descent.lp_gd(3.0, 0.1), steps=10)
    """
    checks.number("p", p, "a number above 1", _is_exponent)
    checks.positive("step", step)

    def moved(state: MirrorState, gradient: Any) -> Any:
        return jax.tree.map(lambda at, G: at - jnp.asarray(step, at.dtype) * G, state.slope, gradient)

    return Exact(*_mirrored(p, moved))


def _is_exponent(p: float) -> bool:
    return 1 < p < float("inf")


def _mirrored(p: Number, moved: Callable[[MirrorState, Any], Any]) -> optax.GradientTransformation:
    """Return the optimizer of a rule that maps a state and the gradient to the next mirror weights."""

    def init(params: optax.Params) -> MirrorState:
        slope = jax.tree.map(lambda W: jnp.sign(W) * jnp.abs(W) ** (p - 1), params)
        return MirrorState(slope, jnp.zeros((), jnp.int32))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, MirrorState]:
        slope = moved(state, updates)
        # Recompute W from the mirror weights in every step, so that rounding errors do not accumulate in W.
        moves = jax.tree.map(lambda at, W: jnp.sign(at) * jnp.abs(at) ** (1 / (p - 1)) - W, slope, params)
        return moves, MirrorState(slope, state.taken + 1)

    return optax.GradientTransformation(init, update)
