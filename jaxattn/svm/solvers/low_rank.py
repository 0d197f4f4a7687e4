"""A solver for the nuclear norm with a rank bound: the convex solution if its rank allows, else a stationary point."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.norms import Norm, OfRank, nuclear
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import Tolerance, certify, tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import after
from jaxattn.svm.solution import Candidate, Solver, Status
from jaxattn.svm.solvers.factors import Iterate, Task, begin, step
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.pursuit import SAFE
from jaxattn.svm.solvers.units import scaled
from jaxattn.svm.stationarity import refuse_soft

__all__ = ["LowRank"]

# Share of the certificate's tolerance at which the steps end.
_SHARP = 0.1


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
        problem = scaled(reduced, reduction.left.T @ first.W @ reduction.right, squared=False)
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
        task = Task(problem.rows, problem.b, cons.rows(problem.original))
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
        task: Task,
        left: Float[Array, "p k"],
        right: Float[Array, "q k"],
        m: int,
        walks: Bool[Array, ""],
        tolerance: Tolerance,
    ) -> Iterate:
        k = left.shape[1]
        draws = jax.random.normal(jax.random.key(self.seed), (self.starts - 1, k, m), left.dtype) / jnp.sqrt(m)
        R = jnp.concatenate([jnp.eye(k, m, dtype=left.dtype)[None], draws.astype(left.dtype)])

        def unfinished(now: Iterate) -> Array:
            return walks & ((now.moved > _SHARP * tolerance.stationarity) | (now.short > _SHARP * tolerance.violation))

        def follow(best: Iterate, turn: tuple[Array, Array]) -> tuple[Iterate, None]:
            R, last = turn
            start = _chosen(last, best, begin(task, left @ R, right @ R))
            most = self.explore + jnp.where(last, self.most, 0)
            end = jax.lax.while_loop(
                lambda now: unfinished(now) & (now.iterations < most), lambda now: step(task, now), start
            )
            return _chosen(last | (end.worth < best.worth), end, best), None

        # All starts and the best one run in one loop, so that its body is compiled once.
        first = begin(task, left @ R[0], right @ R[0])
        turns = jnp.concatenate([R, R[:1]]), jnp.arange(self.starts + 1) == self.starts
        return jax.lax.scan(follow, first, turns)[0]


def _chosen(condition: Bool[Array, ""], one: Iterate, other: Iterate) -> Iterate:
    return jax.tree.map(lambda mine, its: jnp.where(condition, mine, its), one, other)


def _rank(norm: Norm) -> int:
    if isinstance(norm, OfRank):
        return norm.rank
    raise ValueError(f"LowRank: expected a norm as `nuclear_of_rank` makes it, found {norm.name!r}")
