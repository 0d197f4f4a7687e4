"""Solve max-margin problems with any solver, and certify the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import checks
from jaxattn.norms import (
    Entrywise,
    Lengths,
    Norm,
    OfRank,
    Schatten,
    frobenius,
    gamma2,
    named,
    nuclear,
    sign,
    spectral,
)
from jaxattn.parallel import batch, eager
from jaxattn.problem import Problem, as_array, is_concrete
from jaxattn.svm import constraints as cons
from jaxattn.svm.batch_solver import BatchSolver, proposing
from jaxattn.svm.certificate import Tolerance, certify, check_tolerance, tolerance_of
from jaxattn.svm.constraint_builders import token_constraints
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.packing import picked
from jaxattn.svm.sensitivity import with_derivative
from jaxattn.svm.solution import Candidate, Solution, Solver, Status
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.column_generation import ColumnGeneration
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.low_rank import LowRank
from jaxattn.svm.solvers.path_following import Nearby, PathFollowing
from jaxattn.svm.solvers.working_set import WorkingSet
from jaxattn.svm.uniqueness import uniqueness

__all__ = ["att", "solve", "solve_batch", "with_uniqueness"]

# For the few problems that the first solver leaves open: slower, but more accurate for nearly parallel rows.
_CAUTIOUS = InteriorPoint(most=200, reach=0.6, rounds=4)
# From more rows on, the Frobenius solution is found by a working set: that of 512 rows in a tenth of the time.
_MANY = 256


def _solvers(constraints: Constraints, norm: Norm, solver: Solver | Sequence[Solver] | None) -> tuple[Solver, ...]:
    """Return the solvers to try in turn, each on what the previous ones left undecided."""
    if solver is not None:
        chosen: tuple[Any, ...] = tuple(solver) if isinstance(solver, Sequence) else (solver,)
        if isinstance(solver, str):
            chosen = (solver,)  # A string is a sequence, too.
        if not chosen:
            raise ValueError("solver: expected at least one, found an empty list")
        for one in chosen:
            fits = callable(one) and not isinstance(one, type)
            if not fits:
                raise ValueError(
                    "solver: expected a solver such as svm.ActiveSet(), svm.InteriorPoint() or svm.Cvxpy(), "
                    f"or several, found {one!r}"
                )
        return chosen
    n, m = constraints.differences.shape[-3:-1]
    many = n * m > _MANY and is_concrete(constraints.differences)
    start = WorkingSet() if many else ActiveSet()
    if norm.plain == frobenius and constraints.penalty is None:
        # Beside rows that the active set takes for dependent, the working set loses no digits.
        exact = (start,) if many else (start, WorkingSet())
        return (*exact, replace(_CAUTIOUS, start=start))
    if norm.plain in (frobenius, nuclear):
        return (InteriorPoint(start=start), replace(_CAUTIOUS, start=start))
    if isinstance(norm, OfRank):
        return (LowRank(), LowRank(starts=32, most=1000, start=_CAUTIOUS))
    if isinstance(norm, Schatten):
        return (PathFollowing(), Nearby(*((InteriorPoint(), nuclear) if norm.p < 2 else (PathFollowing(), spectral))))
    if norm.plain in (spectral, gamma2) or isinstance(norm, Entrywise | Lengths):
        # A soft margin is compiled as a whole, with its start.
        return (PathFollowing(start=start) if constraints.penalty is None else PathFollowing(),)
    if norm.plain == sign:
        return (ColumnGeneration(),)
    raise ValueError(
        f"solver: expected one for norm {norm.name!r} "
        "(known are frobenius, nuclear, spectral, gamma2, sign, schatten, entrywise, rows, columns, nuclear_of_rank), "
        "found none"
    )


def _tolerance(constraints: Constraints, tolerance: Tolerance | None) -> Tolerance:
    """Return the given tolerance, or the default for the precision of the constraints."""
    if tolerance is None:
        return tolerance_of(constraints.differences.dtype)
    check_tolerance(tolerance)
    return tolerance


def solve(
    constraints: Constraints,
    norm: str | Norm = "frobenius",
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: Tolerance | None = None,
) -> Solution:
    """Solve `min ||W||  s.t. <A_k, W> >= b_k`, or its soft margin, and certify the answer (2308.16898, Att-SVM).

    Works under `jit` and `vmap` with this package's own solvers; of several solvers only the first is used there. A
    problem that is no argument of the traced function is solved once, while it is traced, by any solver. Under `grad`,
    too, where only the optimal value, `primal`, has a derivative, from the multipliers: unique if these and W
    are, and 0 if the status is not OPTIMAL.

    Args:
        constraints: made by `token_constraints` or another function of `constraint_builders`.
        norm: a name, for example "nuclear" or "schatten_1.5" (see `norms.named`), or a Norm, for example
            `nuclear_of_rank(2)`.
        solver: a solver or several, each tried on what the previous ones left undecided. Default: solvers suited to the
            norm.
        tolerance: what counts as proven. Default: the tolerance for the precision of the constraints.

    Returns:
        The solution with its evidence. `status` reports infeasible and unsolved problems. `unique` says whether other
            matrices are optimal too; under `jit` and `vmap` it needs `with_uniqueness`.

    Raises:
        ValueError: malformed, NaN or infinite constraints, an unknown norm, a norm without a solver, a tolerance that
            is not a `Tolerance`, a solver that does not return a `Candidate` for these constraints, a derivative of
            another number than `primal`.

    Example:
        >>> solution = svm.solve(constraints, norm="frobenius")
        >>> svm.Status(int(solution.status)).name, bool(solution.gap < 1e-8)
        ('OPTIMAL', True)
    """
    cons.check(constraints)
    norm = named(norm)
    solvers = _solvers(constraints, norm, solver)
    tolerance = _tolerance(constraints, tolerance)
    if not all(map(is_concrete, jax.tree.leaves(constraints))):
        return _traced(solvers[0], norm, tolerance)(constraints)
    # A function under `jit` may solve a problem that it does not take as an argument.
    with eager.computing():
        lane = jax.tree.map(lambda leaf: np.asarray(leaf)[None], constraints)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), _solved(lane, norm, solvers, tolerance))


def att(
    X: Any,
    Z: Any,
    alpha: Any,
    norm: str | Norm = "frobenius",
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: Tolerance | None = None,
) -> Solution:
    """Solve `min ||W||  s.t. (x_i,alpha_i - x_it)^T W z_i >= 1` for `t != alpha_i`, certified (2308.16898, Att-SVM).

    Args:
        X: tokens, (n, T, d).
        Z: queries, (n, d).
        alpha: the token to select in each input, (n,).
        norm: the norm, as in `solve`.
        solver: the solver or solvers. Default: those suited to the norm.
        tolerance: what counts as proven. Default: the tolerance for the precision.

    Raises:
        ValueError: a wrong shape, numbers that are not finite, alpha outside 0..T-1; and as in `solve`.

    Example:
        >>> solution = svm.att(problem.X, problem.Z, [0, 2, 1])
        >>> svm.Status(int(solution.status)).name
        'OPTIMAL'
    """
    tokens = as_array("X", X)
    if tokens.ndim != 3:
        raise ValueError(f"X: expected shape (n, T, d), found {tuple(tokens.shape)}")
    n, _, d = tokens.shape
    # Labels and head do not appear in the constraints.
    Y, v = jnp.ones(n, tokens.dtype), jnp.zeros(d, tokens.dtype)
    return solve(token_constraints(Problem(X=tokens, Z=Z, Y=Y, v=v), alpha), norm, solver, tolerance)


def solve_batch(
    constraints: Constraints,
    norm: str | Norm = "frobenius",
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: Tolerance | None = None,
    chunk: int | None = None,
) -> Solution:
    """Solve a batch of problems with one leading axis, in chunks of bounded memory.

    Each lane has its own status and evidence, which do not depend on the other lanes in any bit. `solve` on one lane,
    or a batch of another length, may run a program of another shape, whose W and duals differ by rounding, within what
    both certificates allow. In batches of up to some hundred, problems of up to 64, 256, ... rows and 16, 32, ...
    coordinates share programs; larger batches have programs of their own shape, which compile once and run several
    times as fast. `InteriorPoint` compiles its path only for thousands of problems of up to 128 rows, and
    `PathFollowing`, in the spectral norm and those of entries, only for so few rows: other paths are followed in NumPy.
    Returns a Solution of NumPy arrays. Arguments and errors are those of `solve`.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> rows = jax.vmap(lambda one: svm.token_constraints(one, tokens.optimal(one)))(problems)
        >>> svm.solve_batch(rows, norm="nuclear").W.shape
        (8, 5, 5)
    """
    cons.check(constraints, batch=1)
    if chunk is not None:
        checks.count("chunk", chunk)
    norm = named(norm)
    solvers = _solvers(constraints, norm, solver)
    tolerance = _tolerance(constraints, tolerance)
    batch.check_concrete(constraints, "constraints", "use jax.vmap(svm.solve) there")
    with eager.computing():
        return _solved(jax.tree.map(np.asarray, constraints), norm, solvers, tolerance, chunk)


def _solved(
    constraints: Constraints, norm: Norm, solvers: Sequence[Solver], tolerance: Tolerance, chunk: int | None = None
) -> Solution:
    """Solve lanes of NumPy arrays with each solver in turn, on what the previous ones left undecided."""
    batch_solver = BatchSolver.of(constraints, norm, tolerance, chunk)
    solution = batch_solver.attempt(constraints, solvers[0])
    for attempt in solvers[1:]:
        undecided = np.flatnonzero(solution.status == Status.NOT_CONVERGED)
        if undecided.size == 0:
            break
        found = batch_solver.attempt(picked(constraints, undecided), attempt)
        # Decided, or with a smaller gap than the undecided answer before it.
        better = (found.status != Status.NOT_CONVERGED) | (abs(found.gap) < abs(solution.gap[undecided]))
        for kept, new in zip(solution, found, strict=True):
            kept[undecided[better]] = new[better]
    return solution._replace(unique=uniqueness(constraints, norm, solution, batch_solver.certified))


def with_uniqueness(
    constraints: Constraints, solution: Solution, norm: str | Norm = "frobenius", tolerance: Tolerance | None = None
) -> Solution:
    """Return a solution or a batch with `unique` determined where it is UNKNOWN.

    `solve` and `solve_batch` do this. A solution computed under `jit` or `vmap`, where numbers cannot be read, has YES
    only if the objective is strictly convex.

    Args:
        constraints: those that were solved, with as many leading axes, none or one, as the solution.
        solution: a result of `solve` or `certify`.
        norm: the norm of the problem.
        tolerance: what counts as proven for a second solution. Default: the tolerance for the precision.

    Raises:
        ValueError: malformed constraints, an unknown norm, a tolerance that is not a `Tolerance`.

    Example:
        >>> inside = jax.jit(lambda rows: svm.solve(rows, norm="nuclear"))(constraints)
        >>> solution = svm.with_uniqueness(constraints, inside, norm="nuclear")
        >>> svm.Unique(int(inside.unique)).name, svm.Unique(int(solution.unique)).name
        ('UNKNOWN', 'YES')
    """
    axes = solution.W.ndim - 2
    cons.check(constraints, batch=axes)
    norm, tolerance = named(norm), _tolerance(constraints, tolerance)
    lanes = jax.tree.map(lambda leaf: np.asarray(leaf) if axes else np.asarray(leaf)[None], (constraints, solution))
    codes = uniqueness(lanes[0], norm, lanes[1], BatchSolver.of(lanes[0], norm, tolerance).certified)
    return solution._replace(unique=codes if axes else jnp.asarray(codes[0], solution.unique.dtype))


# One function object per solver, norm and tolerance, so that each compiles once. Solving and certifying are separate
# programs, so that all solvers share the latter.
@lru_cache(maxsize=256)
def _traced(solver: Solver, norm: Norm, tolerance: Tolerance) -> Callable[[Constraints], Solution]:
    certifying, propose = _certifying(norm, tolerance), proposing(solver, norm)
    return with_derivative(lambda constraints: certifying(constraints, propose(constraints)))


@lru_cache(maxsize=256)
def _certifying(norm: Norm, tolerance: Tolerance) -> Callable[[Constraints, Candidate], Solution]:
    return jax.jit(lambda constraints, candidate: certify(constraints, norm, candidate, tolerance))
