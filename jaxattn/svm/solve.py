"""One door to every solver: check the constraints, solve, certify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from jaxattn.norms import Entrywise, Norm, OfRank, frobenius, named, nuclear, spectral
from jaxattn.parallel import batch
from jaxattn.problem import is_concrete
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import Tolerance, certify, tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate, Improver, Solution, Solver, Status
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.low_rank import LowRank
from jaxattn.svm.solvers.oracle import Cvxpy
from jaxattn.svm.solvers.path_following import PathFollowing

__all__ = ["solve", "solve_batch"]

# For the few problems that the first solver leaves open: slower, and more accurate where rows are nearly parallel.
_CAUTIOUS = InteriorPoint(most=200, reach=0.6, rounds=4)
# How many problems are solved together: what they work on, matrices of the rows, stays in a cache of so many bytes,
# and the slowest of them, which all wait for, is not that of many. A certificate has no loop: there a chunk is as
# long as any. Fewer problems are filled up to these lengths, so that any number of them compiles once.
_TOGETHER, _FEW, _CACHE = 32, 4, 2**19


def _solvers(constraints: Constraints, norm: Norm, solver: Solver | Sequence[Solver] | None) -> tuple[Solver, ...]:
    """Return what is tried in turn, each on what the one before left undecided."""
    if solver is not None:
        chosen: tuple[Any, ...] = tuple(solver) if isinstance(solver, Sequence) else (solver,)
        if isinstance(solver, str):
            chosen = (solver,)  # A name is a sequence, too.
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
    if norm.plain == frobenius and constraints.penalty is None:
        return (ActiveSet(), _CAUTIOUS)
    if norm.plain in (frobenius, nuclear):
        return (InteriorPoint(), _CAUTIOUS)
    if isinstance(norm, OfRank):
        return (LowRank(), LowRank(starts=32, most=1000, start=_CAUTIOUS))
    if norm.plain == spectral or isinstance(norm, Entrywise):
        return (PathFollowing(),)
    raise ValueError(
        f"solver: expected one for norm {norm.name!r} "
        "(known are frobenius, nuclear, spectral, entrywise, nuclear_of_rank), found none"
    )


def solve(
    constraints: Constraints,
    norm: str | Norm = "frobenius",
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: Tolerance | None = None,
) -> Solution:
    """Solve `min ||W||  s.t. <A_k, W> >= b_k`, or its soft margin, and certify the answer (2308.16898, Att-SVM).

    Works under `jit` and `vmap` with this package's own solvers; of several, the first is used there.

    Args:
        constraints: as `token_constraints` and the other functions of `posing` make them.
        norm: "frobenius", "nuclear", "spectral", or a Norm such as `entrywise(1.5)` or `nuclear_of_rank(2)`.
        solver: a solver or several, each tried on what the one before left undecided; those of the
            norm if None.
        tolerance: what counts as proven; that of the precision if None.

    Returns:
        The solution with its evidence. Infeasible and unsolved problems are reported by `status`.

    Raises:
        ValueError: malformed, NaN or infinite constraints, an unknown norm, a norm without solver.

    Example:
        >>> solution = svm.solve(constraints, norm="frobenius")
        >>> svm.Status(int(solution.status)).name, bool(solution.gap < 1e-8)
        ('OPTIMAL', True)
    """
    cons.check(constraints)
    norm = named(norm)
    solvers = _solvers(constraints, norm, solver)
    tolerance = tolerance or tolerance_of(constraints.differences.dtype)
    answers = (_certifying(norm, tolerance)(constraints, _proposing(one, norm)(constraints)) for one in solvers)
    solution = next(answers)
    if not is_concrete(constraints.differences):
        return solution
    while int(solution.status) == Status.NOT_CONVERGED and (found := next(answers, None)) is not None:
        solution = found if _replaces(found, solution) else solution
    return solution


def solve_batch(
    constraints: Constraints,
    norm: str | Norm = "frobenius",
    solver: Solver | Sequence[Solver] | None = None,
    tolerance: Tolerance | None = None,
    chunk: int | None = None,
) -> Solution:
    """Solve a batch of problems with one leading axis, in chunks of bounded memory.

    Every lane has its own status and evidence; lane i is what `solve` returns for it alone. Compiles
    once a shape. Returns a Solution of NumPy arrays. Arguments and errors as in `solve`.

    Example:
        >>> problems = jax.vmap(lambda key: data.sphere(key, n=3, T=4, d=5))(jax.random.split(key, 8))
        >>> rows = jax.vmap(lambda one: svm.token_constraints(one, tokens.optimal(one)))(problems)
        >>> svm.solve_batch(rows, norm="nuclear").W.shape
        (8, 5, 5)
    """
    cons.check(constraints, batch=1)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk: expected at least 1, found {chunk}")
    norm = named(norm)
    solvers = _solvers(constraints, norm, solver)
    tolerance = tolerance or tolerance_of(constraints.differences.dtype)
    places, constraints = _counting(jax.tree.map(np.asarray, constraints))
    lanes = batch.length(constraints)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), constraints)
    fits = batch.lanes(one, jax.eval_shape(cons.combination, one, jax.eval_shape(cons.lengths, one)))
    cached = _CACHE // (constraints.differences[0, ..., 0].size ** 2 * constraints.differences.dtype.itemsize)
    together = min(_TOGETHER if lanes > _FEW else _FEW, max(_FEW, cached), fits)
    chunks = (chunk, chunk) if chunk is not None else (together, together if lanes <= together else fits)
    solution = _attempt(constraints, solvers[0], norm, tolerance, chunks)
    for attempt in solvers[1:]:
        undecided = np.flatnonzero(solution.status == Status.NOT_CONVERGED)
        if undecided.size == 0:
            break
        found = _attempt(_picked(constraints, undecided), attempt, norm, tolerance, chunks)
        better = np.flatnonzero(_replaces(found, _picked(solution, undecided)))
        for kept, new in zip(solution, found, strict=True):
            kept[undecided[better]] = new[better]
    if places is None:
        return solution
    duals = np.zeros((lanes, places.size), solution.duals.dtype)
    duals[:, places.ravel()] = solution.duals[:, :, 0]
    return solution._replace(duals=duals.reshape(lanes, *places.shape))


def _counting(constraints: Constraints) -> tuple[np.ndarray | None, Constraints]:
    """Leave out the rows that count in no lane: a step of most solvers costs the cube of the number of rows.

    Returns:
        Which rows of a lane are left, (n, m), and these, one to a group; None and all rows if all count somewhere,
        or none does.
    """
    if constraints.present is None:
        return None, constraints
    places = np.any(np.asarray(constraints.present), axis=0)
    if places.all() or not places.any():
        return None, constraints
    lanes, n, m, _ = constraints.differences.shape

    def left(leaf: Any) -> Any:
        return leaf.reshape(lanes, n * m, 1, *leaf.shape[3:])[:, places.ravel()]

    rows = {name: left(leaf) for name, leaf in constraints._asdict().items() if leaf is not None and name != "queries"}
    queries = np.repeat(np.asarray(constraints.queries), places.sum(axis=1), axis=1)
    return places, constraints._replace(**rows, queries=queries)


def _picked(leaves: Any, lanes: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[lanes], leaves)


def _replaces(found: Solution, solution: Solution) -> np.ndarray:
    """Whether an answer, or each of a batch, is decided or at least closer than the undecided one before it."""
    return np.asarray((found.status != Status.NOT_CONVERGED) | (abs(found.gap) < abs(solution.gap)))


def _attempt(
    constraints: Constraints, solver: Solver, norm: Norm, tolerance: Tolerance, chunks: tuple[int, int]
) -> Solution:
    """Solve, and certify, in chunks of these lengths."""
    candidates = _candidates(constraints, solver, norm, chunks[0])
    return batch.over_seeds(_certifying(norm, tolerance), constraints, candidates, width=chunks[1])


def _candidates(constraints: Constraints, solver: Solver, norm: Norm, chunk: int) -> Candidate:
    if isinstance(solver, Cvxpy):
        lanes = (_picked(constraints, i) for i in range(batch.length(constraints)))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(solver(lane, norm) for lane in lanes))
    if isinstance(solver, Improver) and constraints.penalty is None:
        first = _candidates(constraints, solver.start, solver.start_norm, chunk)
        # It works on the rows' Gram matrix and on a tableau beside it, so half as many stay in the cache.
        width = min(chunk, max(_FEW, chunk // 2))
        return batch.over_seeds(_improving(solver, norm), constraints, first, width=width)
    return batch.over_seeds(_proposing(solver, norm), constraints, width=chunk)


# One function object for each solver, norm and tolerance, so that it is compiled once; and one program to find
# an answer and another to certify it, which all solvers share.
@lru_cache(maxsize=256)
def _proposing(solver: Solver, norm: Norm) -> Callable[[Constraints], Candidate]:
    return partial(_propose, solver, norm) if isinstance(solver, Cvxpy) else jax.jit(partial(_propose, solver, norm))


def _propose(solver: Solver, norm: Norm, constraints: Constraints) -> Candidate:
    return solver(constraints, norm)


@lru_cache(maxsize=256)
def _improving(solver: Improver, norm: Norm) -> Callable[[Constraints, Candidate], Candidate]:
    return jax.jit(lambda constraints, first: solver.improve(constraints, norm, first))


@lru_cache(maxsize=256)
def _certifying(norm: Norm, tolerance: Tolerance) -> Callable[[Constraints, Candidate], Solution]:
    return jax.jit(lambda constraints, candidate: certify(constraints, norm, candidate, tolerance))
