"""Internal: the central path of a max-margin problem whose norm is a value, and a Newton step along it.

The path of

    min ||W|| + <C, x>  s.t.  <A_k, W> - s_k + x_k = b_k,  s, x >= 0;  a hard row has no x, an equality no s

has `a_k s_k = mu`, `(C_k - a_k) x_k = mu`, and `M = sum_k a_k A_k` near a subgradient at W of the norm (or of `||W||^2
/ 2`, if `squared`). The last condition depends on the norm and is a value, a `Geometry`; this module has the rows,
which are the same for all norms. Steps are Mehrotra's: a predictor, and then the step itself with the aim and
second-order terms from the predictor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.svm import constraints as cons
from jaxattn.svm.pivoting import inverse_root, positive
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.path_loop import PerRow
from jaxattn.svm.solvers.row_normalization import NormalizedRows

# The fraction of the distance to the boundary that a step takes.
INSIDE = 0.98
# The least and the largest centering.
_CENTERING = 1e-6, 1.0


class Task(NamedTuple):
    """The problem, its rows as matrices written out, and the violation of each row that the certificate accepts."""

    problem: NormalizedRows
    A: Float[Array, "c e"]
    allowed: Float[Array, "n m"]
    squared: bool


class Aim(NamedTuple):
    """The point of the path that a step aims at, and the second-order terms of the path's equations."""

    mu: Float[Array, ""]
    of_norm: Any
    of_s: Float[Array, "n m"]
    of_x: Float[Array, "n m"]


class Local(NamedTuple):
    """A norm's part of the path's equations, linearized at a point.

    Attributes:
        matrix: the change of the margins, (c, c), per change of each multiplier, with the size following.
        across: the decrease of the margins, (n, m), per change of the size alone.
        rate: the change of `missing` per change of the size alone, minus 1 if the norm is not squared. In that case it
            tends to 0 along the path, since W can grow along itself, and the matrix tends to infinity. With this rate
            in the matrix the size follows in part; the border of the system gives the rest.
        follow: the move of the norm's part, from an aim and changes of M and of the size.
        missing: the residual of a move of part and size in the equation that fixes the size.
        second: the second-order terms of a move, of which a given fraction could be made.
    """

    matrix: Float[Array, "c c"]
    across: Float[Array, "n m"]
    rate: Float[Array, ""]
    follow: Callable[[Aim, Array, Array], Any]
    missing: Callable[[Any, Array], Array]
    second: Callable[[Any, Array], Any]


# A part, its size, and a function that returns the fraction of the room for M that an M uses.
Begin = tuple[Any, Float[Array, ""], Callable[[Array], Array]]


class Geometry(ABC):
    """What the path needs of a norm. `part` is the norm's share of a point, a NamedTuple with a field `W`."""

    @abstractmethod
    def begin(self, task: Task, W: Float[Array, "p q"]) -> Begin:
        """Return part and size at twice the Frobenius solution W, and a function: the fraction of M's room in use."""

    @abstractmethod
    def blank(self, part: Any) -> Any:
        """Return zero second-order terms."""

    @abstractmethod
    def at(self, task: Task, part: Any, size: Float[Array, ""], M: Float[Array, "p q"]) -> Local:
        """Return the path's equations, linearized at a point."""

    @abstractmethod
    def longest(self, now: Point, move: Point, most: Float[Array, ""]) -> Float[Array, ""]:
        """Return how far part and size can go, at most `most`, less a safety margin."""

    def moved(self, part: Any, move: Any, share: Float[Array, ""]) -> Any:
        """Return the part after a fraction of a move, whose first fields are those of the part."""
        return type(part)(*(one + share * change for one, change in zip(part, move, strict=False)))

    @abstractmethod
    def products(self, part: Any, size: Float[Array, ""]) -> tuple[Float[Array, ""], int]:
        """Return the sum of the products that equal mu on the path, and their number."""

    @abstractmethod
    def bounds(self, part: Any, size: Float[Array, ""], M: Float[Array, "p q"]) -> tuple[Array, Array]:
        """Return upper bounds of the norm of W and of the dual norm of M."""


class Point(NamedTuple):
    """The norm's part, its size, slacks `s > 0, x > 0`, and multipliers a."""

    part: Any
    size: Float[Array, ""]
    s: Float[Array, "n m"]
    x: Float[Array, "n m"]
    a: Float[Array, "n m"]


class _Rows(NamedTuple):
    """Moves of the multipliers and of their combination M.

    If rows are nearly parallel, large multipliers cancel in M. The move of M is therefore stored as the sum of the
    combinations that were added, each with rounding errors relative to its own length. Recomputing it from the
    multipliers would add errors relative to their length, in each round.
    """

    a: Float[Array, "n m"]
    M: Float[Array, "p q"]

    def plus(self, other: _Rows, share: Float[Array, ""] | float = 1.0) -> _Rows:
        """Return the move plus a fraction of another."""
        return _Rows(self.a + share * other.a, self.M + share * other.M)


def start(task: Task, geometry: Geometry, W: Float[Array, "p q"]) -> Point:
    """Return a first point: twice the Frobenius solution W, with small multipliers."""
    part, size, taken = geometry.begin(task, W)
    problem = task.problem
    s, x, a = path_loop.first_slacks(problem, cons.margins(problem.rows, part.W) - problem.b)

    def shorter(a: Array, least: float) -> Array:
        return a / jnp.maximum(least, 2 * taken(cons.combination(problem.rows, a)))

    a = shorter(a, float(jnp.finfo(a.dtype).tiny))
    if problem.C is not None:
        a = shorter(jnp.minimum(a, problem.C / 2), 1.0)
        x = path_loop.balanced(x, a, s, problem.C)
    return Point(part, size, s, x, a)


def step(task: Task, geometry: Geometry, now: Point) -> tuple[Point, Float[Array, ""], Bool[Array, ""]]:
    """Return the next point, its relative gap, and whether it differs from this one."""
    part, size, s, x, a = now
    problem = task.problem
    rows, b, equal, soft = problem.rows, problem.b, problem.equal, path_loop.is_soft(problem)
    room = path_loop.room(problem, a)
    local = geometry.at(task, part, size, cons.combination(rows, a))
    matrix = local.matrix + jnp.diag(_given_up(s, x, a, room, equal).ravel())
    root = inverse_root(matrix)

    def solved(residual: Array) -> Array:
        return (root.T @ (root @ residual.ravel())).reshape(a.shape)

    def direction(aim: Aim) -> Point:
        def follow(of: _Rows, dsize: Array) -> Point:
            ds = _toward(aim.mu - aim.of_s, s, a, of.a, ~equal)
            dx = _toward(aim.mu - aim.of_x, x, room, -of.a, soft)
            return Point(local.follow(aim, of.M, dsize), dsize, ds, dx, of.a)

        def residual(move: Point) -> Array:
            return b + s + move.s - x - move.x - cons.margins(rows, part.W + move.part.W)

        def combined(da: Array) -> _Rows:
            return _Rows(da, cons.combination(rows, da))

        def solve(_: Int[Array, ""], before: tuple[_Rows, Array]) -> tuple[_Rows, Array]:
            of, dsize = before
            move = follow(of, dsize)
            left = local.missing(move.part, dsize)
            of = of.plus(combined(solved(residual(move) - local.across * left / local.rate)))
            left = local.missing(follow(of, dsize).part, dsize)
            if task.squared:
                return of, dsize - left / local.rate
            along = combined(solved(local.across))
            gained = local.missing(follow(of.plus(along), dsize).part, dsize) - left
            dsize = dsize - left / local.rate
            further = dsize + 1.0 - gained / local.rate
            left = local.missing(follow(of, dsize).part, dsize)
            gained = local.missing(follow(of.plus(along), further).part, further) - left
            share = jnp.where(gained != 0, -left / jnp.where(gained != 0, gained, 1.0), 0.0)
            return of.plus(along, share), dsize + share * (further - dsize)

        # The second round corrects the rounding of the first.
        nothing = _Rows(jnp.zeros_like(a), jnp.zeros_like(part.W)), jnp.zeros_like(size)
        return follow(*jax.lax.fori_loop(0, 2, solve, nothing))

    def attempt(_: Int[Array, ""], before: Any) -> tuple[Aim, Point, Array]:
        """Make a step towards the aim, and choose the next aim from the gap that it leaves."""
        move = direction(before[0])
        rise = jnp.where(soft, -move.a, 0.0)
        longest = partial(path_loop.longest, reach=INSIDE)
        free = (longest(s, move.s), longest(x, move.x), longest(a, jnp.where(equal, 0.0, move.a)), longest(room, rise))
        share = geometry.longest(now, move, jnp.min(jnp.stack(free)))
        of_rows = (one + share * change for one, change in zip(now[1:], move[1:], strict=True))
        new = Point(geometry.moved(part, move.part, share), *of_rows)
        (left, pairs), (ahead, _) = _left(task, geometry, now), _left(task, geometry, new)
        centering = jnp.clip((ahead / left) ** 2, *_CENTERING)
        aim = Aim(centering * left / pairs, local.second(move.part, share), move.a * move.s, -move.a * move.x)
        return aim, new, share

    zero = jnp.zeros_like(size)
    straight = Aim(zero, geometry.blank(part), jnp.zeros_like(s), jnp.zeros_like(x))
    _, new, taken = jax.lax.fori_loop(0, 2, attempt, (straight, now, zero))
    return new, relative_gap(task, geometry, new), taken > 0


def relative_gap(task: Task, geometry: Geometry, now: Point) -> Float[Array, ""]:
    """Bound the relative gap of W, scaled to worst margin 1 if its scale is free; inf if W violates a row."""
    problem = task.problem
    worst = cons.worst_margin(problem.rows._replace(targets=problem.b), now.part.W)
    scale = positive(worst)
    value, bound = geometry.bounds(now.part, now.size, cons.combination(problem.rows, now.a))
    length, worth = value / scale, jnp.sum(now.a * problem.b)
    short = problem.b - cons.margins(problem.rows, now.part.W) / scale
    off = jnp.where(problem.equal, 1e-2 * jnp.abs(short), jnp.where(path_loop.is_soft(problem), 0.0, short))
    keeps = (worst > 0) & (off <= task.allowed).all()
    if problem.C is None:
        primal, dual = length, worth / positive(bound)
    else:
        price = jnp.sum(jnp.where(path_loop.is_soft(problem), problem.C, 0.0) * jnp.maximum(short, 0.0))
        if task.squared:
            primal, dual = length**2 / 2 + price, worth - bound**2 / 2
        else:
            primal, dual = length + price, worth / jnp.maximum(bound, 1.0)
    return jnp.where(keeps, jnp.abs(primal - dual) / positive(primal), jnp.inf)


def _left(task: Task, geometry: Geometry, now: Point) -> tuple[Float[Array, ""], Array]:
    """Return the sum of all products that equal mu on the path, and their number."""
    problem, (of_norm, pairs) = task.problem, geometry.products(now.part, now.size)
    soft = path_loop.is_soft(problem)
    rows = jnp.sum(jnp.where(problem.equal, 0.0, now.a * now.s)) + jnp.sum(now.x * path_loop.room(problem, now.a))
    return of_norm + rows, (pairs + jnp.sum(~problem.equal) + jnp.sum(soft)).astype(rows.dtype)


def _given_up(s: PerRow, x: PerRow, a: PerRow, room: PerRow, equal: Bool[Array, "n m"]) -> PerRow:
    """Return the decrease of each row's slacks per increase of its multiplier, for the Newton matrix."""
    return jnp.where(equal, 0.0, s / jnp.where(equal, 1.0, a) + x / room)


def _toward(product: PerRow, s: PerRow, a: PerRow, da: PerRow, counts: Bool[Array, "n m"]) -> PerRow:
    """Return the move of a slack s that takes `a s` to a product, to first order, while its a moves by da."""
    return jnp.where(counts, (product - s * da) / jnp.where(counts, a, 1.0) - s, 0.0)
