"""A solver for the nuclear norm with a rank bound: the convex solution if its rank allows, else a stationary point.

Steps lead towards a stationary point of `min (||K||_F^2 + ||Q||_F^2) / 2  s.t. <A_k, K Q^T> >= b_k`. With `x = (K,
Q)` a row is `<J_k, x> / 2`, `J_k = (A_k Q, A_k^T K)`. Linearized at x, it requires of a new x `<J_k, x> >= b_k + <A_k,
K Q^T>`. The least-norm x that satisfies all linearized rows is again the solution of a Frobenius problem, found by an
active set on the Gram matrix of the J_k: `x = sum_k a_k J_k`. If that x is the old one, then `K = G Q`, `Q = G^T K`
with `G = sum_k a_k A_k`: x is stationary. Otherwise a fraction of the step is taken.

Far from feasible points the linearized rows may be contradictory, so a shortfall of `h (a_k - previous a_k)` is
allowed: first with a large h (a penalty on it), then with a small one. At the end, where a converges, the shortfall
vanishes for any h.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn.norms import Norm, OfRank, nuclear
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import Tolerance, certify, tolerance_of
from jaxattn.svm.constraints import Constraints, Rows
from jaxattn.svm.least_squares import least_squares
from jaxattn.svm.pivoting import after, positive
from jaxattn.svm.solution import Candidate, Solver, Status
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.path_loop import SAFE
from jaxattn.svm.solvers.row_normalization import normalize_rows
from jaxattn.svm.stationarity import refuse_soft, rows_of_factors

__all__ = ["LowRank"]

# Share of the certificate's tolerance at which the steps end.
_SHARP = 0.1
# Fractions of the longest step, tried in this order, and that step relative to the minimizer of the Lagrangian.
_SHARES = tuple(0.7**k for k in range(20))
_RELAXED = 0.9
# The cost of a unit of shortfall in the merit function, relative to the largest multiplier.
_PRICE = 1.5
# The initial h, its factor from step to step, and its minimum in units of the square root of the rounding unit.
_FREE, _SHRINK, _LEAST = 0.1, 0.3, 8.0


@dataclass(frozen=True)
class LowRank:
    """Solve the convex problem for a lower bound, a proof of infeasibility and a start; then step in the factors.

    The convex solution, truncated to rank m, is the answer if it can be certified. Otherwise several starts are
    followed for some steps, and the best one to the end. The problem has local solutions, and more of them for smaller
    m.

    Attributes:
        starts: the number of starts: the truncated solution, and random compressions of the convex one, `U S^(1/2) R (V
            S^(1/2) R)^T` with a Gaussian R of m columns.
        seed: the seed of the random compressions.
        explore: the number of steps from each start.
        most: the largest number of steps from the best start; it needs 20 to 100.
        start: the solver of the nuclear problem without a rank bound.
    """

    starts: int = 8
    seed: int = 0
    explore: int = 25
    most: int = 300
    start: Solver = field(default_factory=InteriorPoint)

    def __post_init__(self) -> None:
        if not isinstance(self.starts, Integral) or self.starts < 1:
            raise ValueError(f"LowRank: expected at least one start, found {self.starts!r}")

    @property
    def start_norm(self) -> Norm:
        """The nuclear norm."""
        return nuclear

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose a solution, with the multipliers of the convex problem, or a proof of infeasibility.

        Raises:
            ValueError: another norm than `norms.nuclear_of_rank`, or soft rows.
        """
        _rank(norm)
        refuse_soft(constraints, "LowRank")
        return self.improve(constraints, norm, self.start(constraints, nuclear))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Do the same, starting from a given solution of the nuclear problem.

        Raises:
            ValueError: as in a call.
        """
        bound = _rank(norm)
        refuse_soft(constraints, "LowRank")
        reduction = cons.reduce(constraints)
        reduced = reduction.constraints
        problem = normalize_rows(reduced, reduction.left.T @ first.W @ reduction.right, squared=False)
        m = min(bound, *problem.W.shape)
        U, s, Vt = jnp.linalg.svd(problem.W, full_matrices=False)
        root = jnp.sqrt(s)[None, :]
        left, right = U * root, Vt.T * root
        cut = problem.scale * left[:, :m] @ right[:, :m].T
        tolerance = tolerance_of(s.dtype)
        # Stricter than the tolerance, because the certificate of the original problem has rounding errors of its own.
        strict = Tolerance(SAFE * tolerance.gap, SAFE * tolerance.violation, tolerance.farkas)
        proven = certify(reduced, nuclear, Candidate(cut, after(cut, first.duals), first.iterations), strict)
        walks = problem.separable & (s[0] > 0) & (proven.status != Status.OPTIMAL)
        task = _Task(problem.rows, problem.b, cons.rows(problem.original))
        end = self._descended(task, left, right, m, walks, tolerance)
        W = jnp.where(walks, problem.scale * end.K @ end.Q.T, jnp.where(problem.separable, cut, 0.0))
        return Candidate(
            W=reduction.lift(W),
            # The certificate of this candidate also begins with an SVD: avoid independent LAPACK calls.
            duals=after(proven.W, first.duals),
            iterations=first.iterations + jnp.where(walks, end.iterations, 0),
        )

    def _descended(
        self,
        task: _Task,
        left: Float[Array, "p k"],
        right: Float[Array, "q k"],
        m: int,
        walks: Bool[Array, ""],
        tolerance: Tolerance,
    ) -> _Iterate:
        k = left.shape[1]
        draws = jax.random.normal(jax.random.key(self.seed), (self.starts - 1, k, m), left.dtype) / jnp.sqrt(m)
        R = jnp.concatenate([jnp.eye(k, m, dtype=left.dtype)[None], draws.astype(left.dtype)])

        def unfinished(now: _Iterate) -> Array:
            return walks & ((now.moved > _SHARP * tolerance.stationarity) | (now.short > _SHARP * tolerance.violation))

        def follow(best: _Iterate, turn: tuple[Array, Array]) -> tuple[_Iterate, None]:
            R, last = turn
            start = _chosen(last, best, _begin(task, left @ R, right @ R))
            most = self.explore + jnp.where(last, self.most, 0)
            end = jax.lax.while_loop(
                lambda now: unfinished(now) & (now.iterations < most), lambda now: _step(task, now), start
            )
            return _chosen(last | (end.worth < best.worth), end, best), None

        # All starts and the best one run in one loop, so that its body is compiled once.
        first = _begin(task, left @ R[0], right @ R[0])
        turns = jnp.concatenate([R, R[:1]]), jnp.arange(self.starts + 1) == self.starts
        return jax.lax.scan(follow, first, turns)[0]


def _chosen(condition: Bool[Array, ""], one: _Iterate, other: _Iterate) -> _Iterate:
    return jax.tree.map(lambda mine, its: jnp.where(condition, mine, its), one, other)


def _rank(norm: Norm) -> int:
    if isinstance(norm, OfRank):
        return norm.rank
    raise ValueError(f"LowRank: expected a norm as `nuclear_of_rank` makes it, found {norm.name!r}")


class _Task(NamedTuple):
    """Rows `<A_k, W> >= b_k` of length 1, for W of length about 1; hard rows of any kind."""

    rows: Constraints
    b: Float[Array, "n m"]
    of: Rows


class _Iterate(NamedTuple):
    """Factors, and the results of the step that led to them.

    Attributes:
        K: (p, r).
        Q: (q, r).
        a: multipliers times `||x||^2`, (c).
        free: h.
        price: the cost of a unit of shortfall in the merit function.
        moved: the length of the full step from the previous factors, relative to theirs: how far these were from
            stationary.
        short: the worst shortfall, relative to the largest target.
        iterations: the number of steps made.
    """

    K: Float[Array, "p r"]
    Q: Float[Array, "q r"]
    a: Float[Array, " c"]
    free: Float[Array, ""]
    price: Float[Array, ""]
    moved: Float[Array, ""]
    short: Float[Array, ""]
    iterations: Int[Array, ""]

    @property
    def worth(self) -> Float[Array, ""]:
        """About the norm of a feasible W along these factors; inf far from feasible points."""
        left = 1.0 - self.short
        return jnp.where(left > 0, _square(self.K, self.Q) / 2 / positive(left), jnp.inf)


def _begin(task: _Task, K: Float[Array, "p r"], Q: Float[Array, "q r"]) -> _Iterate:
    """Return the first iterate."""
    nothing, unknown = jnp.zeros((), K.dtype), jnp.full((), jnp.inf, K.dtype)
    free = jnp.full((), _FREE, K.dtype)
    a = jnp.zeros(task.b.size, K.dtype)
    return _Iterate(K, Q, a, free, nothing, unknown, unknown, jnp.zeros((), int))


def _step(task: _Task, now: _Iterate) -> _Iterate:
    """Return the next iterate."""
    rows, equal, K, Q = task.rows, task.of.equal.ravel(), now.K, now.Q
    n, m, p = rows.differences.shape
    eps = jnp.finfo(K.dtype).eps
    least = _LEAST * jnp.sqrt(eps)
    at = rows_of_factors(rows, K, Q)
    b, length = task.b.ravel(), positive(_square(K, Q))
    H = at.gram / length + now.free * jnp.eye(b.size, dtype=b.dtype)
    found = least_squares(H, b + at.reached + now.free * now.a, task.of, now.a, 4 * b.size)
    a = found.u / length
    G = cons.combination(rows, a.reshape(n, m))
    dK, dQ = G @ Q - K, G.T @ K - Q

    # At a fraction t of the step, the margins are `reached + t first + t^2 second`.
    dleft = rows.differences.reshape(n * m, p) @ dK
    dright = jnp.repeat(rows.queries @ dQ, m, axis=0)
    first, second = jnp.sum(dleft * at.right + at.left * dright, axis=1), jnp.sum(dleft * dright, axis=1)

    def shortfall(margins: Array) -> Array:
        return jnp.where(equal, jnp.abs(b - margins), jnp.maximum(b - margins, 0.0))

    # At first the price falls with the multipliers; later it must not, to avoid cycles of steps and prices.
    price = jnp.maximum(_PRICE * jnp.max(jnp.abs(a)), jnp.where(now.free > least, 0.8, 1.0) * now.price)
    before, along, size = jnp.sum(shortfall(at.reached)), jnp.sum(K * dK) + jnp.sum(Q * dQ), _square(dK, dQ)
    # Beyond its minimizer the Lagrangian increases. Its curvature may be several times that of the objective, so full
    # steps could overshoot forever (by the same amount if they change the balance of K and Q).
    curve = size - 2 * jnp.sum(G * (dK @ dQ.T))
    shares = jnp.asarray(_SHARES, b.dtype) * jnp.minimum(
        1.0, _RELAXED * size / jnp.maximum(curve, _RELAXED * size + eps)
    )
    change = jax.vmap(
        lambda t: (
            t * along + t**2 * size / 2 + price * (jnp.sum(shortfall(at.reached + t * first + t**2 * second)) - before)
        )
    )(shares)
    hoped = along + size / 2 + price * (jnp.sum(shortfall(at.reached + first)) - before)
    rounding = 8 * eps * (length + price * jnp.sum(jnp.abs(b)))
    good = change <= 1e-4 * shares * jnp.minimum(hoped, 0.0) + rounding
    t = jnp.where(good.any(), shares[jnp.argmax(good)], shares[-1])
    short = jnp.max(shortfall(at.reached + t * first + t**2 * second))
    return _Iterate(
        K=K + t * dK,
        Q=Q + t * dQ,
        a=found.u,
        free=jnp.maximum(least, _SHRINK * now.free),
        price=price,
        moved=jnp.sqrt(size / length),
        short=short / positive(jnp.max(jnp.where(task.of.present, jnp.abs(task.b), 0.0))),
        iterations=now.iterations + 1,
    )


def _square(K: Float[Array, "p r"], Q: Float[Array, "q r"]) -> Float[Array, ""]:
    return jnp.sum(K * K) + jnp.sum(Q * Q)
