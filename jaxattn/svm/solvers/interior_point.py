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
matrices. A step costs about the cube of the number of rows, for any dimension d. `interior_step` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from jaxattn.lengths import euclidean
from jaxattn.norms import Norm, frobenius, nuclear
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import LAST, AnyArray, module_of, positive
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solution import Candidate, Solver
from jaxattn.svm.solvers import path_loop
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.interior_step import Manner, Point, Task, point, slacks, step, task_of
from jaxattn.svm.solvers.path_loop import Answer, follow_path
from jaxattn.svm.solvers.row_normalization import normalize_rows

__all__ = ["InteriorPoint"]


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
        constraints = jax.tree.map(jnp.asarray, constraints)
        return self.improve(constraints, norm, self.start(cons.hard_part(constraints), frobenius))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Do the same, starting from a given Frobenius solution for the hard rows.

        Takes NumPy arrays, too, with a leading axis of lanes: nothing is compiled then.

        Raises:
            ValueError: as in a call.
        """
        if norm.plain not in (frobenius, nuclear):
            raise ValueError(f"InteriorPoint: expected norm 'nuclear' or 'frobenius', found {norm.name!r}")
        reduction = cons.reduce(constraints)
        W = reduction.left.mT @ first.W @ reduction.right
        posed = _column(reduction.constraints, W) if norm.plain == frobenius else (reduction.constraints, W)
        squared = norm.power == 2 and constraints.penalty is not None
        problem, manner = normalize_rows(*posed, squared=squared), Manner(squared, self.reach, self.rounds)
        task, xp = task_of(problem), module_of(W)

        # The W of an answer is the path's V, half of W.
        def along(task: Task, now: Point) -> tuple[Point, Answer, Bool[AnyArray, "*lanes"]]:
            new, gap, moved = step(manner, task, now)
            return new, Answer(new.V, new.a, gap), moved

        # Of hard rows alone, W = 0 is the solution in each norm if it is in one.
        walks = problem.separable
        if constraints.penalty is None:
            walks = walks & (first.W != 0).any(axis=LAST)
        start = _start(manner, task)
        first_answer = Answer(problem.W / 2, start.a, xp.full_like(start.tau, xp.inf))
        tolerance = tolerance_of(W.dtype).gap
        best, steps = follow_path(along, task, start, first_answer, walks, tolerance, self.sharpness, self.most)
        found, a = problem.restored(2 * best.W, best.a)
        walks = per_row(walks)
        return Candidate(
            W=reduction.lift(xp.where(walks, found.reshape(W.shape), 0.0)),
            duals=xp.where(walks, a.reshape(first.duals.shape), first.duals),
            iterations=first.iterations + steps,
        )


def _column(
    constraints: Constraints, W: Float[AnyArray, "*lanes p q"]
) -> tuple[Constraints, Float[AnyArray, "*lanes pq 1"]]:
    """Write W, and each row accordingly, as one column."""
    differences, queries, *rest = constraints
    *lanes, n, m, p = differences.shape
    q, xp = queries.shape[-1], module_of(queries)
    A = (differences[..., None] * queries[..., None, None, :]).reshape(*lanes, n * m, 1, p * q)
    each = (None if leaf is None else leaf.reshape(*lanes, n * m, 1) for leaf in rest)
    return Constraints(A, xp.ones((*lanes, n * m, 1), A.dtype), *each), W.reshape(*lanes, p * q, 1)


def _start(manner: Manner, task: Task) -> Point:
    """Return a first interior point, at twice the Frobenius solution W; lanes that are not separable do not move."""
    problem, W = task.problem, task.problem.W
    xp = module_of(W)
    over = 2 * cons.margins(problem.rows, W) - problem.b
    s, x, a = path_loop.first_slacks(problem, xp.where(per_row(problem.separable), over, 0.0))
    a = a / per_row(2 * positive(euclidean(cons.combination(problem.rows, a))))
    size = 1.2 * positive(euclidean(W))
    tau = 2 * size if manner.squared else xp.ones_like(size)
    if problem.C is not None:
        a = xp.minimum(per_row(tau) * a, problem.C / 2)
        longest = 2 * euclidean(cons.combination(problem.rows, a)) / tau
        a = a / per_row(xp.maximum(1.0, longest))
        x = path_loop.balanced(x, a, s, problem.C)
    M = cons.combination(problem.rows, a)
    eye = xp.eye(W.shape[-1], dtype=W.dtype)
    return point(manner, task, W, per_row(size) * eye, slacks(problem, s, x), a, tau, M, eye / per_row(xp.sqrt(size)))
