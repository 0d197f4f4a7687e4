"""A primal-dual interior-point solver for the nuclear norm, and for soft margins in the nuclear or Frobenius norm.

With `||W||_* = min over Q > 0 of tr Q + tr V Q^{-1} V^T`, `W = 2 V` (V is p x q, Q is q x q, q <= p), and the dual `max
<a, b>  s.t. 0 <= a <= C, ||M|| <= 1`, `M = sum_k a_k A_k`, the path of

    min ||W||_* + <C, x>  s.t.  <A_k, W> - s_k + x_k = b_k,  s, x >= 0

is `V = M Q`, `Q (I - M^T M) = mu I`, `a_k s_k = mu`, `(C_k - a_k) x_k = mu`. A hard row has no x, an equality neither s
nor x. For `||W||_*^2 / 2` instead of the norm, M is bounded by tau at a cost of `tau^2 / 2`, and N = M / tau replaces
M: `V = N Q`, `tau Q (I - N^T N) = mu I`, `||W||_* = tau`.

Newton steps along the path are the usual semidefinite ones (Helmberg, Kojima and Monteiro's directions with Mehrotra's
correction), with the p x p block of the semidefinite form eliminated. Only matrices of the size of the number of
queries remain. As `A_k = (difference) (query)^T`, the Newton system of the multipliers is a sum of products of Gram
matrices. A step costs about the cube of the number of rows, for any dimension d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.norms import Norm, frobenius, nuclear
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import inverse_root, is_positive_definite, per_lane, positive
from jaxattn.svm.solution import Candidate, Solver
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.path_loop import Answer, follow_path
from jaxattn.svm.solvers.row_normalization import NormalizedRows, normalize_rows

__all__ = ["InteriorPoint"]

# Steps tried in this order, as fractions of the longest step that keeps a, s and x within their bounds.
_SHARES = (1.0, 0.98, 0.94, 0.85, 0.7, 0.45, 0.2, 0.05, 0.01)
# The least centering, as a fraction of the share of the gap that is due to V differing from `M Q`.
_RETURN = 0.5


@dataclass(frozen=True)
class InteriorPoint:
    """Primal-dual path following on the reduced problem, stopped by its own gap.

    The Frobenius norm is the nuclear norm of W written as one column, so its soft margin needs no separate path.

    Attributes:
        most: the largest number of iterations; a problem needs 8 to 20.
        sharpness: the gap to stop at, as a fraction of the certificate's tolerance. The error of W is of the order of
            the square root of the gap, and one more step divides it by about a hundred.
        reach: the fraction of the way to the boundary that a step goes. Shorter steps stay closer to the path, where
            nearly degenerate problems can be solved more accurately.
        rounds: the number of refinement rounds of each step.
        start: the solver that decides whether the hard rows are feasible, and gives the first iterate.
    """

    most: int = 60
    sharpness: float = 0.003
    reach: float = 0.98
    rounds: int = 2
    start: Solver = field(default_factory=ActiveSet)

    @property
    def start_norm(self) -> Norm:
        """The Frobenius norm."""
        return frobenius

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: another norm than the nuclear or the Frobenius norm.
        """
        return self.improve(constraints, norm, self.start(cons.hard_part(constraints), frobenius))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Do the same, starting from a given Frobenius solution for the hard rows.

        Raises:
            ValueError: as in a call.
        """
        if norm.plain not in (frobenius, nuclear):
            raise ValueError(f"InteriorPoint: expected norm 'nuclear' or 'frobenius', found {norm.name!r}")
        reduction = cons.reduce(constraints)
        W = reduction.left.T @ first.W @ reduction.right
        posed = _column(reduction.constraints, W) if norm.plain == frobenius else (reduction.constraints, W)
        squared = norm.power == 2 and constraints.penalty is not None
        problem = normalize_rows(*posed, squared=squared)
        flat = problem.rows.differences.reshape(-1, problem.rows.differences.shape[-1])
        task = _Task(problem, flat @ flat.T, squared, reach=self.reach, rounds=self.rounds)

        # The W of an answer is the path's V, half of W.
        def along(now: _Point) -> tuple[_Point, Answer, Bool[Array, ""]]:
            new, gap, moved = _step(task, now)
            return new, Answer(new.V, new.a, gap), moved

        start = _start(task)
        first_answer = Answer(problem.W / 2, start.a, jnp.asarray(jnp.inf, problem.W.dtype))
        tolerance = tolerance_of(problem.W.dtype).gap
        best, steps = follow_path(along, start, first_answer, problem.separable, tolerance, self.sharpness, self.most)
        found, a = problem.restored(2 * best.W, best.a)
        return Candidate(
            W=reduction.lift(jnp.where(problem.separable, found.reshape(W.shape), 0.0)),
            duals=jnp.where(problem.separable, a.reshape(first.duals.shape), first.duals),
            iterations=first.iterations + steps,
        )


def _column(constraints: Constraints, W: Float[Array, "p q"]) -> tuple[Constraints, Float[Array, "pq 1"]]:
    """Write W, and each row accordingly, as one column."""
    differences, queries, *rest = constraints
    n, m, p = differences.shape
    q = queries.shape[-1]
    A = jnp.einsum("nmp,nq->nmpq", differences, queries).reshape(n * m, 1, p * q)
    each = (None if leaf is None else leaf.reshape(n * m, 1) for leaf in rest)
    return Constraints(A, jnp.ones((n * m, 1), A.dtype), *each), W.reshape(p * q, 1)


class _Task(NamedTuple):
    """The problem, the Gram matrix of its rows, and how to step: `squared` requires soft rows.

    A step goes the fraction `reach` of the way to the boundary, and is refined `rounds` times.
    """

    problem: NormalizedRows
    G: Float[Array, "c c"]
    squared: bool
    reach: float
    rounds: int


class _Point(NamedTuple):
    """Primal `V, Q > 0, s > 0, x > 0`, dual a with `||M|| < tau`, and derived quantities.

    tau is 1 except for a squared norm. `left` is the gap `tau (tr Q + tr V Q^{-1} V^T) + <C, x> - <a, b>` between the
    two values, `off` the part of it that is due to V differing from `N Q`.
    """

    V: Float[Array, "p q"]
    Q: Float[Array, "q q"]
    s: Float[Array, "n m"]
    x: Float[Array, "n m"]
    a: Float[Array, "n m"]
    tau: Float[Array, ""]
    left: Float[Array, ""]
    off: Float[Array, ""]


class _Aim(NamedTuple):
    """The point of the path that a step aims at, and the second-order terms of the path's equations."""

    mu: Float[Array, ""]
    of_V: Float[Array, "p q"]
    of_Q: Float[Array, "q q"]
    of_s: Float[Array, "n m"]
    of_x: Float[Array, "n m"]


class _Move(NamedTuple):
    V: Float[Array, "p q"]
    Q: Float[Array, "q q"]
    s: Float[Array, "n m"]
    x: Float[Array, "n m"]
    a: Float[Array, "n m"]
    tau: Float[Array, ""]
    M: Float[Array, "p q"]


def _start(task: _Task) -> _Point:
    """Return a first interior point, at twice the Frobenius solution W; lanes that are not separable do not move."""
    problem, W = task.problem, task.problem.W
    over = 2 * cons.margins(problem.rows, W) - problem.b
    s, x, a = path_loop.first_slacks(problem, jnp.where(problem.separable, over, 0.0))
    a = a / (2 * positive(metrics.norm(cons.combination(problem.rows, a))))
    size = 1.2 * positive(metrics.norm(W))
    tau = 2 * size if task.squared else jnp.ones_like(size)
    if problem.C is not None:
        a = jnp.minimum(tau * a, problem.C / 2)
        a = a / jnp.maximum(1.0, 2 * metrics.norm(cons.combination(problem.rows, a)) / tau)
        x = path_loop.balanced(x, a, s, problem.C)
    M = cons.combination(problem.rows, a)
    eye = jnp.eye(W.shape[1], dtype=W.dtype)
    return _point(problem, W, size * eye, s, x, a, tau, M, eye / jnp.sqrt(size))


def _point(
    problem: NormalizedRows, V: Array, Q: Array, s: Array, x: Array, a: Array, tau: Array, M: Array, R: Array
) -> _Point:
    """Add to a point its gap, computed as a sum of non-negative parts; `R^T R` is the inverse of Q."""
    N = M / tau
    off = tau * jnp.sum(((V - N @ Q) @ R.T) ** 2)
    left = off + tau * jnp.sum(Q * (jnp.eye(Q.shape[0], dtype=Q.dtype) - _square(N)))
    left = left + jnp.sum(jnp.where(problem.equal, 0.0, a * s)) + jnp.sum(x * path_loop.room(problem, a))
    return _Point(V, Q, s, x, a, tau, left, off)


def _relative_gap(task: _Task, now: _Point, R: Array) -> Float[Array, ""]:
    """Bound the relative gap of V, scaled to worst margin 1 if its scale is free; `R^T R` is the inverse of Q.

    `||2 V||_* <= tr Q + tr V Q^{-1} V^T`, and as `||M|| < tau` the dual value is at least `<a, b>`, minus `tau^2 / 2`
    for a squared norm.
    """
    problem = task.problem
    worst = cons.worst_margin(problem.rows._replace(targets=problem.b), 2 * now.V)
    scale = positive(worst)
    primal, dual = (jnp.trace(now.Q) + jnp.sum((now.V @ R.T) ** 2)) / scale, jnp.sum(now.a * problem.b)
    if task.squared:
        primal, dual = primal**2 / 2, dual - now.tau**2 / 2
    if problem.C is not None:
        short = jnp.maximum(problem.b - 2 * cons.margins(problem.rows, now.V) / scale, 0.0)
        primal = primal + jnp.sum(jnp.where(jnp.isfinite(problem.C), problem.C, 0.0) * short)
    return jnp.where(worst > 0, jnp.abs(primal - dual) / primal, jnp.inf)


def _step(task: _Task, now: _Point) -> tuple[_Point, Float[Array, ""], Bool[Array, ""]]:
    """Return the next point, its relative gap, and whether it differs from this one."""
    V, Q, s, x, a, tau, *_ = now
    problem = task.problem
    rows, b, equal = problem.rows, problem.b, problem.equal
    room = path_loop.room(problem, a)
    M = cons.combination(rows, a)
    N = M / tau
    eye = jnp.eye(Q.shape[0], dtype=Q.dtype)
    R = inverse_root(eye - _square(N))
    C = R.T @ R
    matrix = _newton_matrix(rows, task.G, N, Q, C) / tau
    matrix = matrix + jnp.diag(path_loop.given_up(s, x, a, room, equal).ravel())
    root = inverse_root(matrix)

    def solved(residual: Array) -> Array:
        return (root.T @ (root @ residual.ravel())).reshape(a.shape)

    border = _border(now) if task.squared else None

    def direction(aim: _Aim) -> _Move:
        first_Q = aim.mu * C / tau - Q + _symmetric(aim.of_Q @ C)
        first_V = N @ Q - V + aim.of_V

        def follow(da: Array, dtau: Array) -> _Move:
            dM = cons.combination(rows, da)
            turned = dM.T @ N
            dQ = first_Q + _symmetric(Q @ (turned + turned.T - dtau * (eye + _square(N))) @ C) / tau
            dV = first_V + (dM - dtau * N) @ Q / tau + N @ dQ
            ds = path_loop.toward(aim.mu - aim.of_s, s, a, da, ~equal)
            dx = path_loop.toward(aim.mu - aim.of_x, x, room, -da, x > 0)
            return _Move(dV, dQ, ds, dx, da, dtau, dM)

        def residual(move: _Move) -> Array:
            return b + s + move.s - x - move.x - 2 * cons.margins(rows, V + move.V)

        def solve(_: Int[Array, ""], move: _Move) -> _Move:
            move = follow(move.a + solved(residual(move)), move.tau)
            return move if border is None else _bordered(border, move, follow, residual, solved)

        # Each round corrects the rounding of the one before.
        return jax.lax.fori_loop(0, task.rounds, solve, follow(*per_lane((jnp.zeros_like(a), jnp.zeros_like(tau)), a)))

    def attempt(_: Int[Array, ""], before: Any) -> tuple[_Aim, _Point, Array, Array]:
        """Make a step towards the aim, and choose the next aim from the gap that it leaves."""
        move = direction(before[0])
        longest = partial(path_loop.longest, reach=task.reach)
        primal = jnp.minimum(longest(s, move.s), longest(x, move.x))
        rise = jnp.where(x > 0, -move.a, 0.0)
        dual = jnp.minimum(longest(a, jnp.where(equal, 0.0, move.a)), longest(room, rise))
        if task.squared:
            primal = dual = jnp.minimum(jnp.minimum(primal, dual), longest(tau, move.tau))
        inside = _inside(
            lambda t: jnp.stack(
                [Q + t * primal * move.Q, eye - _square((M + t * dual * move.M) / (tau + t * dual * move.tau))]
            ),
            task.reach,
            Q.dtype,
        )
        if task.squared:
            inside = jnp.broadcast_to(jnp.min(inside), (2,))
        primal, dual = primal * inside[0], dual * inside[1]
        values = V + primal * move.V, Q + primal * move.Q, s + primal * move.s, x + primal * move.x
        R = inverse_root(values[1])
        new = _point(problem, *values, a + dual * move.a, tau + dual * move.tau, M + dual * move.M, R)
        # If little of the gap is left, aim far ahead. If V is far from `N Q`, return to the path first.
        centering = jnp.clip(jnp.maximum((new.left / now.left) ** 2, _RETURN * now.off / now.left), 1e-6, 1.0)
        turned = move.M.T @ N
        pairs = Q.shape[0] + jnp.sum(~equal) + jnp.sum(x > 0)
        aim = _Aim(
            mu=centering * now.left / pairs,
            of_V=(move.M - move.tau * N) @ move.Q / tau,
            of_Q=(move.Q @ (turned + turned.T - move.tau * (eye + _square(N))) + Q @ _square(move.M) / tau) / tau,
            of_s=move.a * move.s,
            of_x=-move.a * move.x,
        )
        return aim, new, _relative_gap(task, new, R), (primal > 0) | (dual > 0)

    # Predictor without centering, then the step itself with the aim and second-order terms from the predictor.
    zero = jnp.zeros_like(now.left)
    ahead = _Aim(zero, jnp.zeros_like(V), jnp.zeros_like(Q), jnp.zeros_like(s), jnp.zeros_like(x))
    _, new, gap, moved = jax.lax.fori_loop(0, 2, attempt, per_lane((ahead, now, zero, jnp.zeros((), bool)), a))
    return new, gap, moved


def _border(now: _Point) -> Callable[[_Move], Array]:
    """Return the residual of a move in the extra equation of a squared norm, `tr Q + tr V Q^{-1} V^T = tau`."""
    R = inverse_root(now.Q)
    slope = (now.V @ R.T) @ R
    length, curve = jnp.trace(now.Q) + jnp.sum(now.V * slope), _square(slope)

    def missing(move: _Move) -> Array:
        grown = jnp.trace(move.Q) + 2 * jnp.sum(slope * move.V) - jnp.sum(curve * move.Q)
        return length + grown - now.tau - move.tau

    return missing


def _bordered(
    missing: Callable[[_Move], Array],
    move: _Move,
    follow: Callable[[Array, Array], _Move],
    residual: Callable[[_Move], Array],
    solved: Callable[[Array], Array],
) -> _Move:
    """Solve the extra equation for the move of tau."""
    # All is linear in the moves of a and tau: compute how the residual changes with tau, including a's response.
    along = solved(residual(follow(move.a, move.tau + 1.0)) - residual(move))
    rate = missing(follow(move.a + along, move.tau + 1.0)) - missing(move)
    dtau = -missing(move) / rate
    return follow(move.a + dtau * along, move.tau + dtau)


def _newton_matrix(
    rows: Constraints,
    G: Float[Array, "c c"],
    M: Float[Array, "p q"],
    Q: Float[Array, "q q"],
    C: Float[Array, "q q"],
) -> Float[Array, "c c"]:
    """Return `2 <A_k, A_l Q + M dQ_l>`, with `dQ_l` the derivative of Q with respect to the l-th multiplier."""
    n, m, p = rows.differences.shape
    Z, Y, wide = rows.queries, rows.differences.reshape(n * m, p) @ M, partial(jnp.repeat, repeats=m, axis=1)

    def grams(A: Array) -> tuple[Array, Array, Array]:
        YA = Y @ A
        return YA @ Y.T, wide(YA @ Z.T), wide(wide(Z @ A @ Z.T).T)

    (YQ, mixed_Q, ZQ), (YC, mixed_C, ZC) = grams(Q), grams(C)
    cross = mixed_Q * mixed_C.T
    return 2 * G * ZQ + YQ * ZC + YC * ZQ + cross + cross.T


def _square(A: Float[Array, "p q"]) -> Float[Array, "q q"]:
    return A.T @ A


def _symmetric(A: Float[Array, "q q"]) -> Float[Array, "q q"]:
    return (A + A.T) / 2


def _inside(matrices: Callable[[Array], Array], reach: float, dtype: jnp.dtype) -> Float[Array, " k"]:
    """Return, for each of k matrices, the largest of the tried steps at which it is well positive definite, or 0."""
    shares = jnp.asarray(_SHARES, dtype)
    tried = jax.vmap(matrices)(shares / reach)
    positive = jax.vmap(jax.vmap(is_positive_definite))(tried)
    return jnp.max(jnp.where(positive, shares[:, None], 0.0), axis=0)
