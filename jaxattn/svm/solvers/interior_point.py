"""A primal-dual interior-point solver for the nuclear norm, and for soft margins in the nuclear or Frobenius norm."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import metrics
from jaxattn.norms import Norm, frobenius, nuclear
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import positive
from jaxattn.svm.solution import Candidate, Solver
from jaxattn.svm.solvers import slacks
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.central_path import Point, Task, point, step
from jaxattn.svm.solvers.pursuit import Answer, pursue
from jaxattn.svm.solvers.units import Scaled, scaled

__all__ = ["InteriorPoint"]


@dataclass(frozen=True)
class InteriorPoint:
    """Primal-dual path following on the reduced problem (see `central_path`), stopped by its own gap.

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
        problem = scaled(*posed, squared=squared)
        best, steps = self._followed(problem, squared)
        found, a = problem.restored(2 * best.W, best.a)
        return Candidate(
            W=reduction.lift(jnp.where(problem.separable, found.reshape(W.shape), 0.0)),
            duals=jnp.where(problem.separable, a.reshape(first.duals.shape), first.duals),
            iterations=first.iterations + steps,
        )

    def _followed(self, problem: Scaled, squared: bool) -> tuple[Answer, Int[Array, ""]]:
        """Follow the path. The W of the answer is the path's V, half of W."""
        rows = problem.rows
        flat = rows.differences.reshape(-1, rows.differences.shape[-1])
        G = flat @ flat.T
        task = Task(rows, problem.b, G, problem.C, problem.equal, squared, reach=self.reach, rounds=self.rounds)

        def along(now: Point) -> tuple[Point, Answer, Bool[Array, ""]]:
            new, gap, moved = step(task, now)
            return new, Answer(new.V, new.a, gap), moved

        start = _start(task, problem.W, problem.separable)
        first = Answer(problem.W / 2, start.a, jnp.asarray(jnp.inf, problem.W.dtype))
        tolerance = tolerance_of(problem.W.dtype).gap
        return pursue(along, start, first, problem.separable, tolerance, self.sharpness, self.most)


def _column(constraints: Constraints, W: Float[Array, "p q"]) -> tuple[Constraints, Float[Array, "pq 1"]]:
    """Write W, and each row accordingly, as one column."""
    differences, queries, *rest = constraints
    n, m, p = differences.shape
    q = queries.shape[-1]
    A = jnp.einsum("nmp,nq->nmpq", differences, queries).reshape(n * m, 1, p * q)
    each = (None if leaf is None else leaf.reshape(n * m, 1) for leaf in rest)
    return Constraints(A, jnp.ones((n * m, 1), A.dtype), *each), W.reshape(p * q, 1)


def _start(task: Task, W: Float[Array, "p q"], separable: Bool[Array, ""]) -> Point:
    """Return a first interior point, at twice the Frobenius solution W; lanes that are not separable do not move."""
    over = 2 * cons.margins(task.rows, W) - task.b
    s, x, a = slacks.first_slacks(jnp.where(separable, over, 0.0), task.b, task.C, task.equal)
    a = a / (2 * positive(metrics.norm(cons.combination(task.rows, a))))
    length = metrics.norm(W)
    size = 1.2 * positive(length)
    tau = 2 * size if task.squared else jnp.ones_like(size)
    if task.C is not None:
        a = jnp.minimum(tau * a, task.C / 2)
        a = a / jnp.maximum(1.0, 2 * metrics.norm(cons.combination(task.rows, a)) / tau)
        x = slacks.balanced(x, a, s, task.C)
    M = cons.combination(task.rows, a)
    eye = jnp.eye(W.shape[1], dtype=W.dtype)
    R = eye / jnp.sqrt(size)
    return point(task, W, size * eye, s, x, a, tau, M, R)
