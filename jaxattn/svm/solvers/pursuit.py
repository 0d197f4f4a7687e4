"""Internal: follow a central path until the gap is small, and keep the best answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm.pivoting import per_lane

# The fraction of the certificate's tolerance to aim for, since the certificate computes the gap differently.
SAFE = 0.3
# The number of consecutive steps that may fail to reduce the gap.
_PATIENCE = 20


class Answer(NamedTuple):
    """W and its multipliers, with a bound of their relative gap."""

    W: Float[Array, "p q"]
    a: Float[Array, "n m"]
    gap: Float[Array, ""]


class _Progress(NamedTuple):
    last: Any
    best: Answer
    patience: Int[Array, ""]
    iterations: Int[Array, ""]


def pursue(
    step: Callable[[Any], tuple[Any, Answer, Bool[Array, ""]]],
    start: Any,
    first: Answer,
    walks: Bool[Array, ""],
    tolerance: float,
    sharpness: float,
    most: int,
) -> tuple[Answer, Int[Array, ""]]:
    """Return the best answer along a path, and the number of steps made.

    Near the end rounding may increase the gap again, so the best answer is kept. The pursuit ends at a point that is
    not finite or cannot move, and at the first failure to reduce a gap that is already small enough.

    Args:
        step: maps a point of the path to the next one, its answer, and whether it moved.
        start: the first point.
        first: the answer so far.
        walks: whether to make any steps.
        tolerance: the certificate's tolerance of the gap.
        sharpness: the gap to stop at, as a fraction of the tolerance.
        most: the largest number of steps.
    """

    def guarded(now: _Progress) -> _Progress:
        new, answer, moved = step(now.last)
        finite = ~jnp.isnan(answer.gap) & jnp.isfinite(answer.W).all() & jnp.isfinite(answer.a).all()
        better = finite & (answer.gap < now.best.gap)
        best = jax.tree.map(lambda one, other: jnp.where(better, one, other), answer, now.best)
        goes_on = finite & moved & (best.gap > SAFE * tolerance)
        patience = jnp.where(better, _PATIENCE, jnp.where(goes_on, now.patience - 1, 0))
        return _Progress(new, best, patience, now.iterations + 1)

    def unfinished(now: _Progress) -> Array:
        return (now.best.gap > sharpness * tolerance) & (now.patience > 0) & (now.iterations < most)

    begin = _Progress(start, first, jnp.where(walks, _PATIENCE, 0), jnp.zeros((), int))
    end = jax.lax.while_loop(unfinished, guarded, per_lane(begin, first.W))
    return end.best, end.iterations
