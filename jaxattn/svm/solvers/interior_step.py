"""Internal: a step along the path of `interior_point`, for one problem of JAX's arrays or lanes of NumPy arrays.

The slacks s, and x if there are soft rows, are one array `slack`, (1 or 2, n, m), with the *prices* a and `C - a`: on
the path each product of the two is mu.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float

from jaxattn.svm import constraints as cons
from jaxattn.svm.pivoting import (
    LAST,
    AnyArray,
    diagonal,
    inverse_root,
    is_positive_definite,
    module_of,
    positive,
    with_more,
)
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.path_loop import longest, repeated
from jaxattn.svm.solvers.row_normalization import NormalizedRows

# Steps tried in this order, as fractions of the longest step that keeps a, s and x within their bounds.
_SHARES = (1.0, 0.98, 0.94, 0.85, 0.7, 0.45, 0.2, 0.05, 0.01)
# The least centering, as a fraction of the share of the gap that is due to V differing from `M Q`.
_RETURN = 0.5

Slack = Float[AnyArray, "*lanes k n m"]
Square = Float[AnyArray, "*lanes q q"]
Matrix = Float[AnyArray, "*lanes p q"]
Number = Float[AnyArray, "*lanes"]


class Manner(NamedTuple):
    """How to step: `squared` is the objective `||W||_*^2 / 2`, which requires soft rows.

    A step goes the fraction `reach` of the way to the boundary, and is refined `rounds` times.
    """

    squared: bool
    reach: float
    rounds: int


class Task(NamedTuple):
    """The problem, and what all steps read.

    Attributes:
        problem: the rows in the path's units.
        counts: which slacks there are.
        twice: twice the Gram matrix of the differences of all rows.
        queries: the query of each row.
    """

    problem: NormalizedRows
    counts: Bool[AnyArray, "*lanes k n m"]
    twice: Float[AnyArray, "*lanes c c"]
    queries: Float[AnyArray, "*lanes c q"]


def task_of(problem: NormalizedRows) -> Task:
    """Return the task of solving a problem."""
    flat, xp = cons.flattened(problem.rows), module_of(problem.b)
    queries = xp.repeat(problem.rows.queries, problem.b.shape[-1], axis=-2)
    return Task(problem, slacks(problem, ~problem.equal, path_loop.is_soft(problem)), 2 * flat @ flat.mT, queries)


def slacks(problem: NormalizedRows, of_s: AnyArray, of_x: AnyArray) -> AnyArray:
    """Return numbers of the slacks s and x, (n, m) each, as one array."""
    return of_s[..., None, :, :] if problem.C is None else module_of(of_s).stack((of_s, of_x), axis=-3)


class Point(NamedTuple):
    """Primal `V, Q > 0, slack > 0`, dual a with `||M|| < tau`, and derived quantities.

    tau is 1 except for a squared norm. `left` is the gap `tau (tr Q + tr V Q^{-1} V^T) + <C, x> - <a, b>` between the
    two values, `off` the part of it that is due to V differing from `N Q`.
    """

    V: Matrix
    Q: Square
    slack: Slack
    a: Float[AnyArray, "*lanes n m"]
    tau: Number
    left: Number
    off: Number


class _Aim(NamedTuple):
    """The point of the path that a step aims at, and the second-order terms of the path's equations."""

    mu: Number
    of_V: Matrix
    of_Q: Square
    of_slack: Slack


class _Move(NamedTuple):
    """A change of a point and of M, and that of `tau N^T N`."""

    V: Matrix
    Q: Square
    slack: Slack
    a: Float[AnyArray, "*lanes n m"]
    tau: Number
    M: Matrix
    square: Square


def point(
    manner: Manner,
    task: Task,
    V: Matrix,
    Q: Square,
    slack: Slack,
    a: Float[AnyArray, "*lanes n m"],
    tau: Number,
    M: Matrix,
    R: Square,
) -> Point:
    """Return a point with its gap, computed as a sum of non-negative parts; `R^T R` is the inverse of Q."""
    N, eye = _over(manner, M, tau), module_of(M).eye(Q.shape[-1], dtype=Q.dtype)
    off = tau * (((V - N @ Q) @ R.mT) ** 2).sum(axis=LAST)
    left = off + tau * (Q * (eye - _square(N))).sum(axis=LAST)
    return Point(V, Q, slack, a, tau, left + (slack * _prices(task, a)).sum(axis=(-3, *LAST)), off)


def _prices(task: Task, a: AnyArray) -> Slack:
    return slacks(task.problem, a, a if task.problem.C is None else path_loop.room(task.problem, a))


def _relative_gap(manner: Manner, task: Task, now: Point, R: Square) -> Number:
    """Bound the relative gap of V, scaled to worst margin 1 if its scale is free; `R^T R` is the inverse of Q.

    `||2 V||_* <= tr Q + tr V Q^{-1} V^T`, and as `||M|| < tau` the dual value is at least `<a, b>`, minus `tau^2 / 2`
    for a squared norm.
    """
    problem, xp = task.problem, module_of(now.V)
    margins = 2 * cons.margins(problem.rows, now.V)
    worst = cons.worst_of(problem.rows._replace(targets=problem.b), margins)
    scale = positive(worst)
    primal = (diagonal(now.Q).sum(axis=-1) + ((now.V @ R.mT) ** 2).sum(axis=LAST)) / scale
    dual = (now.a * problem.b).sum(axis=LAST)
    if manner.squared:
        primal, dual = primal**2 / 2, dual - now.tau**2 / 2
    if problem.C is not None:
        short = xp.maximum(problem.b - margins / per_row(scale), 0.0)
        primal = primal + (xp.where(xp.isfinite(problem.C), problem.C, 0.0) * short).sum(axis=LAST)
    return xp.where(worst > 0, xp.abs(primal - dual) / primal, xp.inf)


def step(manner: Manner, task: Task, now: Point) -> tuple[Point, Number, Bool[AnyArray, "*lanes"]]:
    """Return the next point, its relative gap, and whether it differs from this one."""
    V, Q, slack, a, tau, *_ = now
    problem, xp = task.problem, module_of(V)
    prices = _prices(task, a)
    # 0 for what is not a slack, which then never moves.
    per_price = xp.where(task.counts, 1 / xp.where(task.counts, prices, 1.0), 0.0)
    given_up = slack * per_price
    M = cons.combination(problem.rows, a)
    N = _over(manner, M, tau)
    eye, square = xp.eye(Q.shape[-1], dtype=Q.dtype), _square(N)
    C = _square(inverse_root(eye - square))
    Q_less = _over(manner, Q, tau)
    matrix = _newton_matrix(task, N, Q_less, C)
    root = inverse_root(with_more(matrix, given_up.sum(axis=-3).reshape(matrix.shape[:-1])))

    def solved(residual: AnyArray) -> AnyArray:
        flat = residual.reshape(*matrix.shape[:-1], 1)
        return (root.mT @ (root @ flat)).reshape(a.shape)

    border = _border(now) if manner.squared else None

    def direction(aim: _Aim) -> _Move:
        first_Q = per_row(aim.mu) * _over(manner, C, tau) - Q + _symmetric(aim.of_Q @ C)
        first_V = N @ Q - V + aim.of_V
        first_slack = (per_row(aim.mu)[..., None] - aim.of_slack) * per_price - slack

        def follow(da: AnyArray, dtau: AnyArray) -> _Move:
            dM = cons.combination(problem.rows, da)
            turned = dM.mT @ N
            turned = turned + turned.mT
            dN = dM
            if manner.squared:
                turned, dN = turned - per_row(dtau) * (eye + square), dM - per_row(dtau) * N
            dQ = first_Q + _symmetric(Q_less @ turned @ C)
            dV = first_V + dN @ Q_less + N @ dQ
            return _Move(dV, dQ, first_slack - given_up * slacks(problem, da, -da), da, dtau, dM, turned)

        def residual(move: _Move) -> AnyArray:
            own = slack + move.slack
            own = own[..., 0, :, :] if problem.C is None else own[..., 0, :, :] - own[..., 1, :, :]
            return problem.b + own - 2 * cons.margins(problem.rows, V + move.V)

        def solve(move: _Move) -> _Move:
            move = follow(move.a + solved(residual(move)), move.tau)
            return move if border is None else _bordered(border, move, follow, residual, solved)

        # Each round corrects the rounding of the one before.
        none = xp.zeros_like(a), xp.zeros_like(tau), xp.zeros_like(V), xp.zeros_like(Q)
        return repeated(manner.rounds, solve, _Move(first_V + N @ first_Q, first_Q, first_slack, *none), a)

    def attempt(before: tuple[_Aim, Point, Square, AnyArray]) -> tuple[_Aim, Point, Square, AnyArray]:
        """Make a step towards the aim, and choose the next aim from the gap that it leaves."""
        move = direction(before[0])
        primal = longest(slack, move.slack, manner.reach)
        falling = slacks(problem, move.a, -move.a)
        dual = longest(prices, xp.where(task.counts, falling, 0.0), manner.reach)
        if manner.squared:
            primal = dual = xp.minimum(xp.minimum(primal, dual), longest(tau, move.tau, manner.reach))
        inside = _inside(manner.reach, now, move, eye - square, primal, dual)
        if manner.squared:
            inside = xp.minimum(inside[..., :1], inside[..., 1:])
        primal, dual = primal * inside[..., 0], dual * inside[..., -1]
        each, of_dual = per_row(primal), per_row(dual)
        new_Q = Q + each * move.Q
        R = inverse_root(new_Q)
        new = point(
            manner,
            task,
            V + each * move.V,
            new_Q,
            slack + each[..., None] * move.slack,
            a + of_dual * move.a,
            tau + dual * move.tau,
            M + of_dual * move.M,
            R,
        )
        # If little of the gap is left, aim far ahead. If V is far from `N Q`, return to the path first.
        centering = xp.clip(xp.maximum((new.left / now.left) ** 2, _RETURN * now.off / now.left), 1e-6, 1.0)
        dN = move.M - per_row(move.tau) * N if manner.squared else move.M
        aim = _Aim(
            mu=centering * now.left / (Q.shape[-1] + task.counts.sum(axis=(-3, *LAST))).astype(Q.dtype),
            of_V=_over(manner, dN @ move.Q, tau),
            of_Q=_over(manner, move.Q @ move.square + Q_less @ _square(move.M), tau),
            of_slack=falling * move.slack,
        )
        return aim, new, R, (primal > 0) | (dual > 0)

    # Predictor without centering, then the step itself with the aim and second-order terms from the predictor.
    ahead = _Aim(xp.zeros_like(tau), xp.zeros_like(V), xp.zeros_like(Q), xp.zeros_like(slack))
    _, new, R, moved = repeated(2, attempt, (ahead, now, xp.zeros_like(Q), tau < 0), a)
    return new, _relative_gap(manner, task, new, R), moved


def _border(now: Point) -> Callable[[_Move], AnyArray]:
    """Return the residual of a move in the extra equation of a squared norm, `tr Q + tr V Q^{-1} V^T = tau`."""
    R = inverse_root(now.Q)
    # Not by the inverse of Q, in which its small eigenvalues are lost.
    slope = (now.V @ R.mT) @ R
    length, curve = diagonal(now.Q).sum(axis=-1) + (now.V * slope).sum(axis=LAST), _square(slope)

    def missing(move: _Move) -> AnyArray:
        grown = diagonal(move.Q).sum(axis=-1) + (2 * slope * move.V).sum(axis=LAST) - (curve * move.Q).sum(axis=LAST)
        return length + grown - now.tau - move.tau

    return missing


def _bordered(
    missing: Callable[[_Move], AnyArray],
    move: _Move,
    follow: Callable[[AnyArray, AnyArray], _Move],
    residual: Callable[[_Move], AnyArray],
    solved: Callable[[AnyArray], AnyArray],
) -> _Move:
    """Solve the extra equation for the move of tau."""
    # All is linear in the moves of a and tau: compute how the residual changes with tau, including a's response.
    along = solved(residual(follow(move.a, move.tau + 1.0)) - residual(move))
    rate = missing(follow(move.a + along, move.tau + 1.0)) - missing(move)
    dtau = -missing(move) / rate
    return follow(move.a + per_row(dtau) * along, move.tau + dtau)


def _newton_matrix(task: Task, N: Matrix, Q: Square, C: Square) -> Float[AnyArray, "*lanes c c"]:
    """Return `2 <A_k, A_l Q + N dQ_l>`, with `dQ_l` the derivative of Q with respect to the l-th multiplier."""
    Z, Y = task.queries, cons.flattened(task.problem.rows) @ N
    YQ, YC, ZQ, ZC = Y @ Q, Y @ C, Z @ Q, Z @ C
    cross = (YQ @ Z.mT) * (ZC @ Y.mT)
    return (task.twice + YC @ Y.mT) * (ZQ @ Z.mT) + (YQ @ Y.mT) * (ZC @ Z.mT) + cross + cross.mT


def _over(manner: Manner, A: AnyArray, tau: Number) -> AnyArray:
    """Return a matrix divided by tau."""
    return A / per_row(tau) if manner.squared else A


def _square(A: Matrix) -> Square:
    return A.mT @ A


def _symmetric(A: Square) -> Square:
    return (A + A.mT) / 2


def _inside(
    reach: float, now: Point, move: _Move, room: Square, primal: Number, dual: Number
) -> Float[AnyArray, "*lanes 2"]:
    """Return the largest of the tried shares of a primal and of a dual step that stay well inside, or 0.

    Somewhat further, Q and `tau^2 - M^T M` are still positive definite. The latter, a quadratic function of the step,
    is `tau^2 room` now.
    """
    xp = module_of(room)
    shares = xp.asarray(_SHARES, room.dtype)
    t, dt = (per_row(one[..., None] * (shares / reach)) for one in (primal, dual))
    tau, dtau = per_row(now.tau), per_row(move.tau)
    slope = tau * (dtau * room - move.square)
    curve = dtau**2 * xp.eye(room.shape[-1], dtype=room.dtype) - _square(move.M)
    of_Q = now.Q[..., None, :, :] + t * move.Q[..., None, :, :]
    of_M = (tau**2 * room)[..., None, :, :] + dt * (slope[..., None, :, :] + dt * curve[..., None, :, :])
    tried = is_positive_definite(xp.stack([of_Q, of_M], axis=-4))
    return xp.max(xp.where(tried, shares, 0.0), axis=-1)
