"""Internal: the central path of a max-margin problem whose norm is a value, and a Newton step along it.

The path of

    min ||W|| + <C, x>  s.t.  <A_k, W> - s_k + x_k = b_k,  s, x >= 0;  a hard row has no x, an equality no s

has `a_k s_k = mu`, `(C_k - a_k) x_k = mu`, and `M = sum_k a_k A_k` near a subgradient at W of the norm (or of `||W||^2
/ 2`, if `squared`). The last condition depends on the norm and is a value, a `Geometry`; this module has the rows,
which are the same for all norms. Steps are Mehrotra's: a predictor, and then the step itself with the aim and
second-order terms from the predictor.

All functions here take one problem of JAX's arrays, or NumPy arrays with a leading axis of lanes, if the geometry does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float

from jaxattn.svm import constraints as cons
from jaxattn.svm.pivoting import LAST, AnyArray, inverse_root, module_of, positive, with_more
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.path_loop import PerRow
from jaxattn.svm.solvers.row_normalization import NormalizedRows

# The fraction of the distance to the boundary that a step takes.
INSIDE = 0.98
# The least and the largest centering.
_CENTERING = 1e-6, 1.0

Matrix = Float[AnyArray, "*lanes p q"]
Number = Float[AnyArray, "*lanes"]


class Task(NamedTuple):
    """The problem, its rows as matrices written out, and the violation of each row that the certificate accepts."""

    problem: NormalizedRows
    A: Float[AnyArray, "*lanes c e"]
    allowed: PerRow


class Aim(NamedTuple):
    """The point of the path that a step aims at, and the second-order terms of the path's equations."""

    mu: Number
    of_norm: Any
    of_s: PerRow
    of_x: PerRow


class Local(NamedTuple):
    """A norm's part of the path's equations, linearized at a point.

    Attributes:
        matrix: the change of the margins, (c, c), per change of each multiplier, with the size following; `step` may
            write into it.
        across: the decrease of the margins, (n, m), per change of the size alone.
        rate: the change of `missing` per change of the size alone, minus 1 if the norm is not squared. In that case it
            tends to 0 along the path, since W can grow along itself, and the matrix tends to infinity. With this rate
            in the matrix the size follows in part; the border of the system gives the rest.
        follow: the move of the norm's part, from an aim and changes of M and of the size.
        missing: the residual of a move of part and size in the equation that fixes the size.
        second: the second-order terms of a move, of which a given fraction could be made.
    """

    matrix: Float[AnyArray, "*lanes c c"]
    across: PerRow
    rate: Number
    follow: Callable[[Aim, AnyArray, AnyArray], Any]
    missing: Callable[[Any, AnyArray], AnyArray]
    second: Callable[[Any, AnyArray], Any]


# A part, its size, and a function that returns the fraction of the room for M that an M uses.
Begin = tuple[Any, Number, Callable[[AnyArray], AnyArray]]


class Geometry(ABC):
    """What the path needs of a norm. `part` is the norm's share of a point, a NamedTuple with a field `W`."""

    # Whether the objective is half the squared norm.
    squared: bool

    @abstractmethod
    def begin(self, task: Task, W: Matrix) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""

    @abstractmethod
    def blank(self, part: Any) -> Any:
        """Return zero second-order terms."""

    @abstractmethod
    def at(self, task: Task, part: Any, size: Number, M: Matrix) -> Local:
        """Return the path's equations, linearized at a point."""

    @abstractmethod
    def longest(self, now: Point, move: Point, most: Number) -> Number:
        """Return how far part and size can go, at most `most`, less a safety margin."""

    def moved(self, part: Any, move: Any, share: Number) -> Any:
        """Return the part after a fraction of a move, whose first fields, matrices, are those of the part."""
        return type(part)(*(one + per_row(share) * change for one, change in zip(part, move, strict=False)))

    @abstractmethod
    def products(self, part: Any, size: Number) -> tuple[Number, int]:
        """Return the sum of the products that equal mu on the path, and their number."""

    @abstractmethod
    def bounds(self, part: Any, size: Number, M: Matrix) -> tuple[AnyArray, AnyArray]:
        """Return upper bounds of the norm of W and of the dual norm of M."""


class Point(NamedTuple):
    """The norm's part, its size, slacks `s > 0, x > 0`, and multipliers a."""

    part: Any
    size: Number
    s: PerRow
    x: PerRow
    a: PerRow


class _Rows(NamedTuple):
    """Moves of the multipliers and of their combination M.

    If rows are nearly parallel, large multipliers cancel in M. The move of M is therefore stored as the sum of the
    combinations that were added, each with rounding errors relative to its own length. Recomputing it from the
    multipliers would add errors relative to their length, in each round.
    """

    a: PerRow
    M: Matrix

    def plus(self, other: _Rows) -> _Rows:
        """Return the sum of two moves."""
        return _Rows(self.a + other.a, self.M + other.M)

    def times(self, share: Number) -> _Rows:
        """Return a fraction of the move."""
        return _Rows(per_row(share) * self.a, per_row(share) * self.M)


def start(task: Task, geometry: Geometry, W: Matrix) -> Point:
    """Return a first point: twice the Frobenius solution W, with small multipliers."""
    part, size, taken = geometry.begin(task, W)
    problem, xp = task.problem, module_of(W)
    s, x, a = path_loop.first_slacks(problem, cons.margins(problem.rows, part.W) - problem.b)

    def shorter(a: AnyArray, least: float) -> AnyArray:
        return a / per_row(xp.maximum(least, 2 * taken(cons.combination(problem.rows, a))))

    a = shorter(a, float(jnp.finfo(a.dtype).tiny))
    if problem.C is not None:
        a = shorter(xp.minimum(a, problem.C / 2), 1.0)
        x = path_loop.balanced(x, a, s, problem.C)
    return Point(part, size, s, x, a)


def step(task: Task, geometry: Geometry, now: Point) -> tuple[Point, Number, Bool[AnyArray, "*lanes"]]:
    """Return the next point, its relative gap, and whether it differs from this one."""
    part, size, s, x, a = now
    problem, xp = task.problem, module_of(a)
    rows, b, equal, soft = problem.rows, problem.b, problem.equal, path_loop.is_soft(problem)
    room = path_loop.room(problem, a)
    local = geometry.at(task, part, size, cons.combination(rows, a))
    given_up = _given_up(s, x, a, room, equal)
    root = inverse_root(with_more(local.matrix, given_up.reshape(local.matrix.shape[:-1])))

    def solved(residual: AnyArray) -> AnyArray:
        flat = residual.reshape(*root.shape[:-1], 1)
        return (root.mT @ (root @ flat)).reshape(a.shape)

    def direction(aim: Aim) -> Point:
        mu = per_row(aim.mu)

        def follow(of: _Rows, dsize: AnyArray) -> Point:
            ds = _toward(mu - aim.of_s, s, a, of.a, ~equal)
            dx = _toward(mu - aim.of_x, x, room, -of.a, soft)
            return Point(local.follow(aim, of.M, dsize), dsize, ds, dx, of.a)

        def residual(move: Point) -> AnyArray:
            return b + s + move.s - x - move.x - cons.margins(rows, part.W + move.part.W)

        def combined(da: AnyArray) -> _Rows:
            return _Rows(da, cons.combination(rows, da))

        def solve(before: tuple[_Rows, AnyArray]) -> tuple[_Rows, AnyArray]:
            of, dsize = before
            move = follow(of, dsize)
            left = local.missing(move.part, dsize)
            of = of.plus(combined(solved(residual(move) - local.across * per_row(left / local.rate))))
            left = local.missing(follow(of, dsize).part, dsize)
            if geometry.squared:
                return of, dsize - left / local.rate
            along = combined(solved(local.across))
            gained = local.missing(follow(of.plus(along), dsize).part, dsize) - left
            dsize = dsize - left / local.rate
            further = dsize + 1.0 - gained / local.rate
            left = local.missing(follow(of, dsize).part, dsize)
            gained = local.missing(follow(of.plus(along), further).part, further) - left
            share = xp.where(gained != 0, -left / xp.where(gained != 0, gained, 1.0), 0.0)
            return of.plus(along.times(share)), dsize + share * (further - dsize)

        # The second round corrects the rounding of the first.
        nothing = _Rows(xp.zeros_like(a), xp.zeros_like(part.W)), xp.zeros_like(size)
        return follow(*path_loop.repeated(2, solve, nothing, a))

    def attempt(before: tuple[Aim, Point, AnyArray]) -> tuple[Aim, Point, AnyArray]:
        """Make a step towards the aim, and choose the next aim from the gap that it leaves."""
        move = direction(before[0])
        rise = xp.where(soft, -move.a, 0.0)
        longest = partial(path_loop.longest, reach=INSIDE)
        free = (longest(s, move.s), longest(x, move.x), longest(a, xp.where(equal, 0.0, move.a)), longest(room, rise))
        share = geometry.longest(now, move, xp.min(xp.stack(free), axis=0))
        of_rows = (one + per_row(share) * change for one, change in zip(now[2:], move[2:], strict=True))
        new = Point(geometry.moved(part, move.part, share), size + share * move.size, *of_rows)
        (left, pairs), (ahead, _) = _left(task, geometry, now), _left(task, geometry, new)
        centering = xp.clip((ahead / left) ** 2, *_CENTERING)
        aim = Aim(centering * left / pairs, local.second(move.part, share), move.a * move.s, -move.a * move.x)
        return aim, new, share

    zero = xp.zeros_like(size)
    straight = Aim(zero, geometry.blank(part), xp.zeros_like(s), xp.zeros_like(x))
    _, new, taken = path_loop.repeated(2, attempt, (straight, now, zero), a)
    return new, relative_gap(task, geometry, new), taken > 0


def relative_gap(task: Task, geometry: Geometry, now: Point) -> Number:
    """Bound the relative gap of W, scaled to worst margin 1 if its scale is free; inf if W violates a row."""
    problem, xp = task.problem, module_of(now.a)
    worst = cons.worst_margin(problem.rows._replace(targets=problem.b), now.part.W)
    scale = positive(worst)
    value, bound = geometry.bounds(now.part, now.size, cons.combination(problem.rows, now.a))
    length, worth = value / scale, xp.sum(now.a * problem.b, axis=LAST)
    short = problem.b - cons.margins(problem.rows, now.part.W) / per_row(scale)
    off = xp.where(problem.equal, 1e-2 * xp.abs(short), xp.where(path_loop.is_soft(problem), 0.0, short))
    keeps = (worst > 0) & (off <= task.allowed).all(axis=LAST)
    if problem.C is None:
        primal, dual = length, worth / positive(bound)
    else:
        prices = xp.where(path_loop.is_soft(problem), problem.C, 0.0) * xp.maximum(short, 0.0)
        price = xp.sum(prices, axis=LAST)
        if geometry.squared:
            primal, dual = length**2 / 2 + price, worth - bound**2 / 2
        else:
            primal, dual = length + price, worth / xp.maximum(bound, 1.0)
    return xp.where(keeps, xp.abs(primal - dual) / positive(primal), xp.inf)


def _left(task: Task, geometry: Geometry, now: Point) -> tuple[Number, AnyArray]:
    """Return the sum of all products that equal mu on the path, and their number."""
    problem, (of_norm, pairs), xp = task.problem, geometry.products(now.part, now.size), module_of(now.a)
    of_rows = xp.where(problem.equal, 0.0, now.a * now.s) + now.x * path_loop.room(problem, now.a)
    number = pairs + xp.sum(~problem.equal, axis=LAST) + xp.sum(path_loop.is_soft(problem), axis=LAST)
    return of_norm + xp.sum(of_rows, axis=LAST), number.astype(now.a.dtype)


def _given_up(s: PerRow, x: PerRow, a: PerRow, room: PerRow, equal: Bool[AnyArray, "*lanes n m"]) -> PerRow:
    """Return the decrease of each row's slacks per increase of its multiplier, for the Newton matrix."""
    xp = module_of(s)
    return xp.where(equal, 0.0, s / xp.where(equal, 1.0, a) + x / room)


def _toward(product: PerRow, s: PerRow, a: PerRow, da: PerRow, counts: Bool[AnyArray, "*lanes n m"]) -> PerRow:
    """Return the move of a slack s that takes `a s` to a product, to first order, while its a moves by da."""
    xp = module_of(s)
    return xp.where(counts, (product - s * da) / xp.where(counts, a, 1.0) - s, 0.0)
