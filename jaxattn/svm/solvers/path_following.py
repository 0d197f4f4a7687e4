"""A primal-dual interior-point solver for norms of singular values, entries, rows or columns, and for gamma2."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
from jaxtyping import Bool

from jaxattn.lengths import euclidean
from jaxattn.norms import Entrywise, Lengths, Norm, Schatten, conjugate, frobenius, gamma2, spectral
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import LAST, AnyArray, module_of, positive
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solution import Candidate, Solver
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.cones import Cones
from jaxattn.svm.solvers.entries import Entries, length
from jaxattn.svm.solvers.inner_products import InnerProducts
from jaxattn.svm.solvers.norm_path import Geometry, Point, Task, start, step
from jaxattn.svm.solvers.path_loop import SAFE, Answer, follow_path
from jaxattn.svm.solvers.powers import Powers
from jaxattn.svm.solvers.row_normalization import normalize_rows
from jaxattn.svm.solvers.semidefinite import Singular

__all__ = ["PathFollowing"]


@dataclass(frozen=True)
class PathFollowing:
    """Primal-dual path following (see `norm_path`), stopped by its own gap.

    Attributes:
        most: the largest number of iterations; a problem needs 10 to 30.
        sharpness: the gap to stop at, as a fraction of the certificate's tolerance.
        start: the solver that decides whether the hard rows are feasible, and gives the first iterate.
        yielding: the square of the extra entry of W that each soft row has in the first problem, as a fraction of the
            row's square; it sets how far the row may yield.
    """

    most: int = 80
    sharpness: float = 0.003
    start: Solver = field(default_factory=ActiveSet)
    yielding: float = 1e-5

    @property
    def start_norm(self) -> Norm:
        """The Frobenius norm."""
        return frobenius

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            ValueError: a norm without a path.
        """
        # To first order a squared norm costs nothing at W = 0, which makes that a safer start of its path.
        posed = cons.hard_part(constraints) if norm.power == 2 else _yielding(constraints, self.yielding)
        first = self.start(posed, frobenius)
        return self.improve(constraints, norm, first._replace(W=first.W[: constraints.differences.shape[-1]]))

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Do the same, starting from a Frobenius solution of the hard rows or a proof that they are infeasible.

        Takes NumPy arrays, too, with a leading axis of lanes, in norms that `runs_on_host`: nothing is compiled then.

        Raises:
            ValueError: as in a call.
        """
        squared = norm.power == 2 or constraints.penalty is None
        geometry, xp = _geometry(norm, squared=squared), module_of(first.W)
        reduction, posed = None, (constraints, first.W)
        if isinstance(geometry, Singular | Powers):
            reduction = cons.reduce(constraints)
            posed = reduction.constraints, reduction.left.mT @ first.W @ reduction.right
        elif isinstance(geometry, Entries) and constraints.queries.shape[-2] == 1:
            reduction = _of_one_query(constraints, geometry.norm)
            posed = reduction.constraints, first.W @ constraints.queries.mT / positive(reduction.constraints.queries)
        problem = normalize_rows(*posed, squared=squared)
        # If all rows are hard and W = 0 satisfies them, W = 0 is the solution.
        of = cons.rows(constraints)
        walks = (euclidean(problem.W) > 0) | (of.present & ~of.hard).any(axis=LAST)
        goes_on = problem.separable & walks
        tolerance, rows = tolerance_of(problem.W.dtype), problem.rows
        A = rows.differences[..., None] * rows.queries[..., None, None, :]
        task = Task(
            problem,
            A=A.reshape(*problem.scale.shape, math.prod(problem.b.shape[-2:]), -1),
            allowed=SAFE * tolerance.violation / (per_row(problem.scale) * problem.lengths),
        )

        def along(task: Task, now: Point) -> tuple[Point, Answer, Bool[AnyArray, "*lanes"]]:
            new, gap, moved = step(task, geometry, now)
            return new, Answer(new.part.W, new.a, gap), moved

        begin = start(task, geometry, xp.where(per_row(problem.separable), problem.W, 0.0))
        first_answer = Answer(problem.W, begin.a, xp.full_like(begin.size, xp.inf))
        best, steps = follow_path(along, task, begin, first_answer, goes_on, tolerance.gap, self.sharpness, self.most)
        W, a = problem.restored(best.W, best.a)
        solved = per_row(problem.separable)
        return Candidate(
            W=xp.where(solved, W if reduction is None else reduction.lift(W), 0.0),
            duals=xp.where(solved & per_row(walks), a, first.duals),
            iterations=first.iterations + steps,
        )


def runs_on_host(norm: Norm) -> bool:
    """Return whether `PathFollowing.improve` takes lanes of NumPy arrays in a norm."""
    return isinstance(norm, Entrywise) or norm.plain == spectral


@dataclass(frozen=True)
class Nearby:
    """Propose the solution of another norm: its bounds are near where the norms are.

    A Schatten norm of an exponent near 1 or above 10 may be too steep for its own path. On matrices of rank r it is
    within a factor `r^(1 - 1/p)` of the nuclear norm, and `r^(1/p)` of the spectral one.

    Attributes:
        solver: the solver of the other norm.
        norm: the other norm.
    """

    solver: Solver
    norm: Norm

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the other norm's solution, whatever the norm."""
        del norm
        return self.solver(constraints, self.norm)


def _yielding(constraints: Constraints, share: float) -> Constraints:
    """Return hard rows in which each soft row may yield, by an extra entry of W of its own, at a large cost.

    The Frobenius solution then nearly satisfies the soft rows if possible, and exists if the hard rows are feasible.
    """
    if constraints.penalty is None:
        return constraints
    of, (n, m, _) = cons.rows(constraints), constraints.differences.shape
    soft = of.present & ~of.hard
    root = jnp.sqrt(jnp.maximum(share, 1e3 * jnp.finfo(of.targets.dtype).eps)).astype(of.targets.dtype)
    own = jnp.where(soft, root * jnp.linalg.norm(constraints.differences, axis=-1), 0.0)
    apart = jnp.diag(own.ravel()).reshape(n, m, n * m)
    return constraints._replace(
        differences=jnp.concatenate([constraints.differences, apart], axis=-1),
        # A zero row cannot be satisfied by yielding: remove it.
        present=of.present & ~(soft & (cons.lengths(constraints) == 0)),
        penalty=None,
    )


def _of_one_query(constraints: Constraints, norm: Entrywise) -> cons.Reduction:
    """Return the rows of a single query z as rows of one column.

    All margins depend on `W z` alone, so each row of W is the shortest one with its product with z: a multiple of g,
    with `<g, z>` the dual norm of z.
    """
    z, q = constraints.queries[..., 0, :], conjugate(norm.p)
    xp, size = module_of(z), abs(z)
    largest = xp.max(size, axis=-1, keepdims=True)
    powers = xp.where(size == largest, 1.0, 0.0) if norm.p == 1 else (size / positive(largest)) ** (q - 1)
    g = (xp.sign(z) * powers)[..., None]
    g = g / per_row(positive(length(g, norm.p)))
    eye = xp.eye(constraints.differences.shape[-1], dtype=z.dtype)
    return cons.Reduction(constraints._replace(queries=z[..., None, :] @ g), eye, g)


def _geometry(norm: Norm, *, squared: bool) -> Geometry:
    if isinstance(norm, Entrywise):
        return Entries(norm, squared)
    if isinstance(norm, Schatten):
        return Powers(norm, squared)
    if isinstance(norm, Lengths):
        return Cones(norm, squared)
    if norm.plain == spectral:
        return Singular(squared)
    if norm.plain == gamma2:
        return InnerProducts(squared)
    raise ValueError(
        "PathFollowing: expected norm 'spectral' or 'gamma2', an entrywise one, a Schatten one or one of rows or "
        f"columns, found {norm.name!r}"
    )
