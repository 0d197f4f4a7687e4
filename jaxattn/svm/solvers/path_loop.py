"""Internal: what the path-following solvers share: the loop, and the slacks of the rows on a central path.

On the path `a s = mu` and `(C - a) x = mu`. C is None if all rows are hard; otherwise it is inf for hard rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm.pivoting import per_lane, positive
from jaxattn.svm.solvers.row_normalization import NormalizedRows

# The fraction of the certificate's tolerance to aim for, since the certificate computes the gap differently.
SAFE = 0.3
# The number of consecutive steps that may fail to reduce the gap.
_PATIENCE = 20

PerRow = Float[Array, "n m"]


class Answer(NamedTuple):
    """W and its multipliers, with a bound of their relative gap."""

    W: Float[Array, "p q"]
    a: PerRow
    gap: Float[Array, ""]


class _Progress(NamedTuple):
    last: Any
    best: Answer
    patience: Int[Array, ""]
    iterations: Int[Array, ""]


def follow_path(
    step: Callable[[Any], tuple[Any, Answer, Bool[Array, ""]]],
    start: Any,
    first: Answer,
    walks: Bool[Array, ""],
    tolerance: float,
    sharpness: float,
    most: int,
) -> tuple[Answer, Int[Array, ""]]:
    """Return the best answer along a path, and the number of steps made.

    Near the end rounding may increase the gap again, so the best answer is kept. The loop ends at a point that is not
    finite or cannot move, and at the first failure to reduce a gap that is already small enough.

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


def is_soft(problem: NormalizedRows) -> Bool[Array, "n m"]:
    """Return which rows are soft."""
    return jnp.zeros_like(problem.equal) if problem.C is None else jnp.isfinite(problem.C)


def room(problem: NormalizedRows, a: PerRow) -> PerRow:
    """Return how far each multiplier is below its upper bound; 1 if it has none."""
    C = problem.C
    return jnp.ones_like(a) if C is None else jnp.where(jnp.isfinite(C), C - a, 1.0)


def first_slacks(problem: NormalizedRows, over: PerRow) -> tuple[PerRow, PerRow, PerRow]:
    """Return initial slacks s and x for margins that exceed their targets by `over`, and multipliers `1 / s`.

    A row that does not exceed its target gets s = 1; an equality gets s = 0 and no multiplier.
    """
    b, soft = problem.b, is_soft(problem)
    # A soft row has both slacks, with this difference and a sum of at least |b|; never 0.
    both = jnp.sqrt(over**2 + jnp.where(b == 0, 1.0, b) ** 2)
    s = jnp.where(soft, (both + over) / 2, over)
    x = jnp.where(soft, (both - over) / 2, 0.0)
    s = jnp.where(problem.equal, 0.0, positive(s))
    return s, x, jnp.where(problem.equal, 0.0, 1 / positive(s))


def balanced(x: PerRow, a: PerRow, s: PerRow, C: PerRow) -> PerRow:
    """Return x, made small for large penalties so that no product `(C - a) x` is far from the others."""
    return jnp.where(jnp.isfinite(C), jnp.minimum(x, a * s / (C - a)), 0.0)


def given_up(s: PerRow, x: PerRow, a: PerRow, room: PerRow, equal: Bool[Array, "n m"]) -> PerRow:
    """Return the decrease of each row's slacks per increase of its multiplier, for the Newton matrix."""
    return jnp.where(equal, 0.0, s / jnp.where(equal, 1.0, a) + x / room)


def toward(product: PerRow, s: PerRow, a: PerRow, da: PerRow, counts: Bool[Array, "n m"]) -> PerRow:
    """Return the move of a slack s that takes `a s` to a product, to first order, while its a moves by da."""
    return jnp.where(counts, (product - s * da) / jnp.where(counts, a, 1.0) - s, 0.0)


def longest(x: Float[Array, "*shape"], dx: Float[Array, "*shape"], reach: float) -> Float[Array, ""]:
    """Return how far `x + t dx` may go, at most 1: the fraction `reach` of the way to 0."""
    ratio = jnp.where(dx < 0, -x / jnp.where(dx < 0, dx, -1.0), jnp.inf)
    return jnp.minimum(1.0, reach * jnp.min(ratio))
