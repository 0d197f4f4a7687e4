"""The nuclear-norm Att-SVM, solved by a primal-dual interior-point method.

With `||W||_* = min over Q > 0 of tr Q + tr V Q^{-1} V^T`, `W = 2 V` (V is p x q, Q is q x q, q <= p), and
the dual `max <a, b>  s.t. a >= 0, ||M|| <= 1`, `M = sum_k a_k A_k`, the central path of

    min ||W||_*  s.t.  <A_k, W> - s_k = b_k, s >= 0

is `V = M Q`, `Q (I - M^T M) = mu I`, `a_k s_k = mu`. Newton steps along it follow the usual semidefinite
ones (Helmberg, Kojima and Monteiro's directions with Mehrotra's correction), but the p x p block of the
semidefinite form is eliminated: only matrices of the number of queries remain, and, as
`A_k = (difference) (query)^T`, the Newton system of the multipliers is a sum of products of Gram
matrices. A step costs about the cube of the number of constraints, whatever the dimension d.
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
from jaxattn.svm import constraints as cons
from jaxattn.svm.active_set import ActiveSet
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.norms import Norm, frobenius, nuclear
from jaxattn.svm.pivoting import inverse_root
from jaxattn.svm.solution import Candidate, Solution, Solver

# Steps are tried in this order, as shares of the longest step that keeps a and s non-negative; the
# share of the distance to the boundary that is taken.
_SHARES = (1.0, 0.98, 0.94, 0.85, 0.7, 0.45, 0.2, 0.05, 0.01)
_INSIDE = 0.98
# Least centering, as a share of the gap's part that V is off from `M Q`.
_RETURN = 0.5
# Share of the certificate's tolerance that leaves room for how the certificate computes the gap.
_SAFE = 0.3
# Steps in a row that may fail to narrow the gap.
_PATIENCE = 20


@dataclass(frozen=True)
class InteriorPoint:
    """Primal-dual path following on the reduced problem, stopped by its own gap.

    Attributes:
        most: iterations allowed; a problem needs 8 to 20.
        sharpness: the gap to stop at, as a share of the certificate's tolerance. The error of W is of
            the order of the gap's square root, and a step more makes a hundredth of it.
        start: the solver that decides feasibility and gives the first iterate.
    """

    most: int = 60
    sharpness: float = 0.003
    start: Solver = field(default_factory=ActiveSet)

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the nuclear solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: another norm than the nuclear norm.
        """
        return self.improve(constraints, norm, self.start(constraints, frobenius))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate | Solution) -> Candidate:
        """Do as a call does, from an answer of the Frobenius problem that is known already.

        Raises:
            ValueError: another norm than the nuclear norm.
        """
        if norm is not nuclear:
            raise ValueError(f"InteriorPoint: expected norm 'nuclear', found {norm.name!r}")
        reduction = cons.reduce(constraints)
        W = reduction.left.T @ first.W @ reduction.right
        worst = jnp.min(cons.margins(reduction.constraints, W))
        separable = worst > 0
        W = W / jnp.where(separable, worst, 1.0)
        # At this scale the Frobenius solution and every A_k have norm 1.
        scale = jnp.where(separable, metrics.norm(W), 1.0)
        lengths = cons.lengths(reduction.constraints)
        lengths = jnp.where(lengths > 0, lengths, 1.0)
        rows = reduction.constraints._replace(differences=reduction.constraints.differences / lengths[..., None])
        tolerance = tolerance_of(W.dtype).gap
        b = 1 / (scale * lengths)
        flat = rows.differences.reshape(-1, rows.differences.shape[-1])
        found = jax.lax.while_loop(
            lambda now: (now.best.gap > self.sharpness * tolerance) & (now.patience > 0) & (now.iterations < self.most),
            partial(_guarded_step, rows, b, flat @ flat.T, _SAFE * tolerance),
            _start(rows, b, W / scale, separable),
        )
        return Candidate(
            W=reduction.lift(jnp.where(separable, 2 * scale * found.best.V, 0.0)),
            duals=jnp.where(separable, found.best.a / lengths, first.duals),
            iterations=first.iterations + found.iterations,
        )


class _Iterate(NamedTuple):
    """Primal `V, Q > 0, s > 0`, dual `a > 0` with `||M|| < 1`, and what is read off them.

    `left` is the gap `tr Q + tr V Q^{-1} V^T - <a, b>` between the two values, `off` the part of it
    that V is off from `M Q`.
    """

    V: Float[Array, "p q"]
    Q: Float[Array, "q q"]
    s: Float[Array, "n m"]
    a: Float[Array, "n m"]
    left: Float[Array, ""]
    off: Float[Array, ""]


class _Best(NamedTuple):
    """The answer so far, with a bound of its relative gap: near the end rounding lets the gap rise again."""

    V: Float[Array, "p q"]
    a: Float[Array, "n m"]
    gap: Float[Array, ""]


class _Progress(NamedTuple):
    last: _Iterate
    best: _Best
    patience: Int[Array, ""]
    iterations: Int[Array, ""]


class _Aim(NamedTuple):
    """The point of the path that a step aims at, and the second-order terms of the path's equations."""

    mu: Float[Array, ""]
    of_V: Float[Array, "p q"]
    of_Q: Float[Array, "q q"]
    of_s: Float[Array, "n m"]


class _Move(NamedTuple):
    V: Float[Array, "p q"]
    Q: Float[Array, "q q"]
    s: Float[Array, "n m"]
    a: Float[Array, "n m"]
    M: Float[Array, "p q"]


def _start(rows: Constraints, b: Float[Array, "n m"], W: Float[Array, "p q"], separable: Bool[Array, ""]) -> _Progress:
    """Begin inside, at twice the Frobenius solution W; a lane that is not separable stands still."""
    s = jnp.where(separable, 2 * cons.margins(rows, W) - b, 1.0)
    a = 1 / s
    M = cons.combination(rows, a)
    length = 2 * metrics.norm(M)
    a, M = a / length, M / length
    eye, size = jnp.eye(W.shape[1], dtype=W.dtype), 1.2 * metrics.norm(W)
    best = _Best(W, a, jnp.asarray(jnp.inf, W.dtype))
    begin = _Iterate(W, size * eye, s, a, *_left(W, size * eye, s, a, M, eye / jnp.sqrt(size)))
    return _Progress(begin, best, jnp.where(separable, _PATIENCE, 0), jnp.zeros((), int))


def _left(V: Array, Q: Array, s: Array, a: Array, M: Array, R: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the gap between the values, as a sum of parts that are never negative, and V's part of it.

    `R^T R` is the inverse of Q.
    """
    off = jnp.sum(((V - M @ Q) @ R.T) ** 2)
    return jnp.sum(Q * (jnp.eye(Q.shape[0], dtype=Q.dtype) - _square(M))) + jnp.sum(a * s) + off, off


def _relative_gap(rows: Constraints, b: Array, V: Array, Q: Array, a: Array, R: Array) -> Float[Array, ""]:
    """Bound the relative gap of V scaled to worst margin 1.

    `||2 V||_* <= tr Q + tr V Q^{-1} V^T`, and as `||M|| < 1` the dual value is at least `<a, b>`.
    """
    worst = jnp.min(2 * cons.margins(rows, V) / b)
    primal = (jnp.trace(Q) + jnp.sum((V @ R.T) ** 2)) / jnp.where(worst > 0, worst, 1.0)
    return jnp.where(worst > 0, (primal - jnp.sum(a * b)) / primal, jnp.inf)


def _guarded_step(
    rows: Constraints, b: Float[Array, "n m"], G: Float[Array, "c c"], enough: float, now: _Progress
) -> _Progress:
    """Make a step and keep the best iterate.

    What is not finite or cannot move uses up all patience; so does the first failure to narrow a gap
    that is `enough` already.
    """
    new, gap, moved = _step(rows, b, G, now.last)
    finite = jnp.isfinite(new.left) & jnp.isfinite(new.V).all()
    better = finite & (gap < now.best.gap)
    best = jax.tree.map(lambda one, other: jnp.where(better, one, other), _Best(new.V, new.a, gap), now.best)
    patience = jnp.where(better, _PATIENCE, jnp.where(finite & moved & (best.gap > enough), now.patience - 1, 0))
    return _Progress(new, best, patience, now.iterations + 1)


def _step(
    rows: Constraints, b: Float[Array, "n m"], G: Float[Array, "c c"], now: _Iterate
) -> tuple[_Iterate, Float[Array, ""], Bool[Array, ""]]:
    """Return the next iterate, its relative gap, and whether it differs from this one."""
    V, Q, s, a, *_ = now
    M = cons.combination(rows, a)
    eye = jnp.eye(Q.shape[0], dtype=Q.dtype)
    R, _ = inverse_root(eye - _square(M))
    C = R.T @ R
    newton = _newton_matrix(rows, G, M, Q, C) + jnp.diag((s / a).ravel())
    R, _ = inverse_root(newton)

    def direction(aim: _Aim) -> _Move:
        first_Q = aim.mu * C - Q + _symmetric(aim.of_Q @ C)
        first_V = M @ Q - V + aim.of_V

        def follow(da: Array) -> _Move:
            dM = cons.combination(rows, da)
            turned = dM.T @ M
            dQ = first_Q + _symmetric(Q @ (turned + turned.T) @ C)
            return _Move(first_V + dM @ Q + M @ dQ, dQ, (aim.mu - aim.of_s - s * da) / a - s, da, dM)

        def solve(_: Int[Array, ""], move: _Move) -> _Move:
            residual = b + s + move.s - 2 * cons.margins(rows, V + move.V)
            return follow(move.a + (R.T @ (R @ residual.ravel())).reshape(a.shape))

        # The second round corrects the rounding of the first.
        return jax.lax.fori_loop(0, 2, solve, follow(jnp.zeros_like(a)))

    def attempt(_: Int[Array, ""], before: Any) -> tuple[_Aim, _Iterate, Array, Array]:
        """Step towards the aim, and choose the next aim by what that step leaves of the gap."""
        move = direction(before[0])
        primal, dual = _longest(s, move.s), _longest(a, move.a)
        inside = _inside(lambda t: jnp.stack([Q + t * primal * move.Q, eye - _square(M + t * dual * move.M)]), Q.dtype)
        primal, dual = primal * inside[0], dual * inside[1]
        values = V + primal * move.V, Q + primal * move.Q, s + primal * move.s, a + dual * move.a
        R, _ = inverse_root(values[1])
        new = _Iterate(*values, *_left(*values, M + dual * move.M, R))
        gap = _relative_gap(rows, b, new.V, new.Q, new.a, R)
        # Little left: aim far ahead. Far off `V = M Q`: come back to the path first.
        centering = jnp.clip(jnp.maximum((new.left / now.left) ** 2, _RETURN * now.off / now.left), 1e-6, 1.0)
        turned = move.M.T @ M
        aim = _Aim(
            mu=centering * now.left / (Q.shape[0] + a.size),
            of_V=move.M @ move.Q,
            of_Q=move.Q @ (turned + turned.T) + Q @ _square(move.M),
            of_s=move.a * move.s,
        )
        return aim, new, gap, (primal > 0) | (dual > 0)

    # First straight ahead, then, with the aim and the second-order terms that this gave, the step itself.
    ahead = _Aim(jnp.zeros_like(now.left), jnp.zeros_like(V), jnp.zeros_like(Q), jnp.zeros_like(s))
    begin = ahead, now, jnp.zeros_like(now.left), jnp.zeros((), bool)
    _, new, gap, moved = jax.lax.fori_loop(0, 2, attempt, begin)
    return new, gap, moved


def _newton_matrix(
    rows: Constraints,
    G: Float[Array, "c c"],
    M: Float[Array, "p q"],
    Q: Float[Array, "q q"],
    C: Float[Array, "q q"],
) -> Float[Array, "c c"]:
    """Return `2 <A_k, A_l Q + M dQ_l>` for `dQ_l` the change of Q with the l-th multiplier."""
    n, m, p = rows.differences.shape
    Z, Y = rows.queries, rows.differences.reshape(n * m, p) @ M

    def grams(A: Array) -> tuple[Array, Array, Array]:
        YA = Y @ A
        return YA @ Y.T, _wide(YA @ Z.T, m), _wide(_wide(Z @ A @ Z.T, m).T, m)

    (YQ, mixed_Q, ZQ), (YC, mixed_C, ZC) = grams(Q), grams(C)
    cross = mixed_Q * mixed_C.T
    return 2 * G * ZQ + YQ * ZC + YC * ZQ + cross + cross.T


def _square(A: Float[Array, "p q"]) -> Float[Array, "q q"]:
    return A.T @ A


def _symmetric(A: Float[Array, "q q"]) -> Float[Array, "q q"]:
    return (A + A.T) / 2


def _wide(A: Float[Array, "k n"], m: int) -> Float[Array, "k c"]:
    return jnp.repeat(A, m, axis=1)


def _longest(x: Float[Array, "n m"], dx: Float[Array, "n m"]) -> Float[Array, ""]:
    """Return how far `x + t dx` stays positive, at most 1, less a margin."""
    ratio = jnp.where(dx < 0, -x / jnp.where(dx < 0, dx, -1.0), jnp.inf)
    return jnp.minimum(1.0, _INSIDE * jnp.min(ratio))


def _inside(matrices: Callable[[Array], Array], dtype: jnp.dtype) -> Float[Array, " k"]:
    """Return, for each of k matrices, the largest tried share at which it is well positive definite, or 0."""
    shares = jnp.asarray(_SHARES, dtype)
    tried = jax.vmap(matrices)(shares / _INSIDE)
    positive = jax.vmap(jax.vmap(lambda matrix: (inverse_root(matrix)[1] > 0).all()))(tried)
    return jnp.max(jnp.where(positive, shares[:, None], 0.0), axis=0)
