"""Internal: what the path-following solvers share: the loop, and the slacks of the rows on a central path.

All functions take one problem of JAX's arrays, or NumPy arrays with a leading axis of lanes.

On the path `a s = mu` and `(C - a) x = mu`. C is None if all rows are hard; otherwise it is inf for hard rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxattn.svm.pivoting import LAST, AnyArray, module_of, per_lane, positive
from jaxattn.svm.solvers.row_normalization import NormalizedRows

# The fraction of the certificate's tolerance to aim for, since the certificate computes the gap differently.
SAFE = 0.3
# The number of consecutive steps that may fail to reduce the gap.
_PATIENCE = 20
# The smallest initial slack of a hard row, as a fraction of the largest one. Rows of very different lengths have slacks
# of very different sizes, and a path that begins far from its center takes no step.
_LEAST = 1e-2

PerRow = Float[AnyArray, "*lanes n m"]


class Answer(NamedTuple):
    """W and its multipliers, with a bound of their relative gap."""

    W: Float[AnyArray, "*lanes p q"]
    a: PerRow
    gap: Float[AnyArray, "*lanes"]


class _Progress(NamedTuple):
    last: Any
    best: Answer
    patience: Int[AnyArray, "*lanes"]
    iterations: Int[AnyArray, "*lanes"]


def follow_path(
    step: Callable[[Any, Any], tuple[Any, Answer, Bool[AnyArray, "*lanes"]]],
    given: Any,
    start: Any,
    first: Answer,
    walks: Bool[AnyArray, "*lanes"],
    tolerance: float,
    sharpness: float,
    most: int,
) -> tuple[Answer, Int[AnyArray, "*lanes"]]:
    """Return the best answer along a path, and the number of steps made.

    Near the end rounding may increase the gap again, so the best answer is kept. The loop ends at a point that is not
    finite or cannot move, and at the first failure to reduce a gap that is already small enough.

    Args:
        step: maps what is given and a point of the path to the next one, its answer, and whether it moved.
        given: the arrays, apart from the point, that depend on the lane.
        start: the first point.
        first: the answer so far.
        walks: whether to make any steps.
        tolerance: the certificate's tolerance of the gap.
        sharpness: the gap to stop at, as a fraction of the tolerance.
        most: the largest number of steps.
    """
    xp = module_of(walks)

    def guarded(given: Any, now: _Progress) -> _Progress:
        new, answer, moved = step(given, now.last)
        finite = ~xp.isnan(answer.gap) & xp.isfinite(answer.W).all(axis=LAST) & xp.isfinite(answer.a).all(axis=LAST)
        better = finite & (answer.gap < now.best.gap)

        def chosen(one: AnyArray, other: AnyArray) -> AnyArray:
            return xp.where(better.reshape(*better.shape, *[1] * (one.ndim - better.ndim)), one, other)

        best = jax.tree.map(chosen, answer, now.best)
        goes_on = finite & moved & (best.gap > SAFE * tolerance)
        patience = xp.where(better, _PATIENCE, xp.where(goes_on, now.patience - 1, 0))
        return _Progress(new, best, patience, now.iterations + 1)

    def unfinished(now: _Progress) -> AnyArray:
        return (now.best.gap > sharpness * tolerance) & (now.patience > 0) & (now.iterations < most)

    begin = _Progress(start, first, xp.where(walks, _PATIENCE, 0), xp.zeros(walks.shape, int))
    if isinstance(walks, np.ndarray):
        return _of_lanes(guarded, unfinished, given, begin)
    end = jax.lax.while_loop(unfinished, partial(guarded, given), per_lane(begin, first.W))
    return end.best, end.iterations


def _of_lanes(
    guarded: Callable[[Any, _Progress], _Progress],
    unfinished: Callable[[_Progress], np.ndarray],
    given: Any,
    now: _Progress,
) -> tuple[Answer, np.ndarray]:
    """Return the results of all lanes; those that are finished are not computed any further."""
    end, lanes = jax.tree.map(np.copy, (now.best, now.iterations)), np.arange(len(now.patience))
    while lanes.size:
        goes_on = unfinished(now)
        if not goes_on.all():
            for whole, part in zip(jax.tree.leaves(end), jax.tree.leaves((now.best, now.iterations)), strict=True):
                whole[lanes[~goes_on]] = part[~goes_on]
            lanes, given, now = jax.tree.map(lambda leaf, kept=goes_on: leaf[kept], (lanes, given, now))
        if lanes.size:
            now = guarded(given, now)
    return end


def repeated(count: int, body: Callable[[Any], Any], start: Any, of: Float[AnyArray, "..."]) -> Any:
    """Return the result of `count` calls of `body`, each on that of the one before; compiled once if `of` is JAX's."""
    if isinstance(of, np.ndarray):
        for _ in range(count):
            start = body(start)
        return start
    return jax.lax.fori_loop(0, count, lambda _, now: body(now), per_lane(start, of))


def is_soft(problem: NormalizedRows) -> Bool[AnyArray, "*lanes n m"]:
    """Return which rows are soft."""
    xp = module_of(problem.b)
    return xp.zeros_like(problem.equal) if problem.C is None else xp.isfinite(problem.C)


def room(problem: NormalizedRows, a: PerRow) -> PerRow:
    """Return how far each multiplier is below its upper bound; 1 if it has none."""
    C, xp = problem.C, module_of(a)
    return xp.ones_like(a) if C is None else xp.where(xp.isfinite(C), C - a, 1.0)


def first_slacks(problem: NormalizedRows, over: PerRow) -> tuple[PerRow, PerRow, PerRow]:
    """Return initial slacks s and x for margins that exceed their targets by `over`, and multipliers `1 / s`.

    If no row exceeds its target, s = 1; an equality gets s = 0 and no multiplier. A slack may differ from `over`: the
    first step makes up for it.
    """
    b, soft, xp = problem.b, is_soft(problem), module_of(over)
    # A soft row has both slacks, with this difference and a sum of at least |b|; never 0.
    both = xp.sqrt(over**2 + xp.where(b == 0, 1.0, b) ** 2)
    s = xp.where(soft, (both + over) / 2, over)
    x = xp.where(soft, (both - over) / 2, 0.0)
    hard = ~(soft | problem.equal)
    largest = xp.max(xp.where(hard, s, 0.0), axis=LAST, keepdims=True)
    s = xp.where(problem.equal, 0.0, positive(xp.where(hard, xp.maximum(s, _LEAST * largest), s)))
    return s, x, xp.where(problem.equal, 0.0, 1 / positive(s))


def balanced(x: PerRow, a: PerRow, s: PerRow, C: PerRow) -> PerRow:
    """Return x, made small for large penalties so that no product `(C - a) x` is far from the others."""
    xp = module_of(x)
    return xp.where(xp.isfinite(C), xp.minimum(x, a * s / (C - a)), 0.0)


def longest(x: Float[AnyArray, "..."], dx: Float[AnyArray, "..."], reach: float) -> Float[AnyArray, "*lanes"]:
    """Return how far `x + t dx` may go, at most 1: the fraction `reach` of the way to 0."""
    xp, lanes = module_of(x), int(isinstance(x, np.ndarray))
    ratio = xp.where(dx < 0, -x / xp.where(dx < 0, dx, -1.0), xp.inf)
    return xp.minimum(1.0, reach * xp.min(ratio, axis=tuple(range(lanes, x.ndim))))
