"""Internal: the problems of a batch, or some of them, solved by one solver in programs that they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn.norms import Norm, of_singular_values
from jaxattn.parallel import batch, blas, effort
from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import Tolerance, certify_lanes
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.packing import Packed, packed, picked, with_kinds
from jaxattn.svm.solution import Candidate, Improver, Solution, Solver
from jaxattn.svm.solvers import nearly_active
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.column_generation import ColumnGeneration
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.oracle import Cvxpy
from jaxattn.svm.solvers.path_following import Nearby, PathFollowing, runs_on_host
from jaxattn.svm.solvers.working_set import WorkingSet

# How many problems are solved together: their working matrices should fit into a cache of this many bytes, and the
# slowest problem, for which all wait, should not be that of a large batch. Smaller groups are padded to these lengths,
# so that every number of problems compiles once.
_TOGETHER, _FEW, _CACHE = 32, 4, 2**19
# Problems whose rows, written out as matrices, take more bytes are solved one by one.
_LARGE = 2**23
# On the host, their Gram matrices may take this many bytes: each call of NumPy should have enough to do.
_IN_PART = 2**22
# For so many problems of so few rows the nuclear path is compiled, for five seconds: many cores run programs side by
# side. Other paths are compiled for so few rows: of more rows, NumPy takes no longer than a compiled program.
_COMPILED, _ROWS = 4096, 128
# Problems of more rows are solved by those that are nearly active: of 1,040 rows in two thirds of the time.
_MOST = 1000
# Solvers on the host, which solve one problem after another.
_ON_HOST = (Cvxpy, ColumnGeneration, WorkingSet)
# The number of steps of other solvers (with several starts, or longer steps), as a multiple of an interior-point
# method's.
_MORE_STEPS = 50


class BatchSolver(NamedTuple):
    """How the problems of a batch, or some of them, are solved and certified.

    Attributes:
        norm: the norm.
        tolerance: what counts as proven.
        lanes: the number of lanes of the whole batch, which sets the layout of its parts.
        fits: how many lanes fit into memory.
        chunk: how many lanes to solve together. Default: what the layout and the memory suggest.
    """

    norm: Norm
    tolerance: Tolerance
    lanes: int
    fits: int
    chunk: int | None = None

    @classmethod
    def of(cls, constraints: Constraints, norm: Norm, tolerance: Tolerance, chunk: int | None = None) -> BatchSolver:
        """Return that of a whole batch."""
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), constraints)
        fits = batch.lanes(one, jax.eval_shape(cons.combination, one, jax.eval_shape(cons.lengths, one)))
        return cls(norm, tolerance, batch.length(constraints), fits, chunk)

    def attempt(self, constraints: Constraints, solver: Solver) -> Solution:
        """Solve lanes without their absent rows, and certify the answers."""
        return self.certified(constraints, self.proposed(constraints, solver, self.norm))

    def proposed(self, constraints: Constraints, solver: Solver, norm: Norm) -> Candidate:
        """Propose answers in a norm, as NumPy arrays."""
        if isinstance(solver, Nearby):
            return self.proposed(constraints, solver.solver, solver.norm)
        *_, n, m, _ = constraints.differences.shape
        if isinstance(solver, InteriorPoint | PathFollowing) and self._is_for_host(constraints, solver, norm):
            first = self.proposed(cons.hard_part(constraints), solver.start, solver.start_norm)
            improve = partial(self._improved, norm)
            if isinstance(solver, PathFollowing) or n * m <= _MOST or constraints.penalty is not None:
                return improve(constraints, solver, first)
            each = (picked((constraints, first), [i]) for i in range(batch.length(constraints)))
            return _concatenated([nearly_active.solved(improve, one, solver, start) for one, start in each])
        # Nothing is known about a user's solver.
        shared = isinstance(solver, ActiveSet | InteriorPoint)
        in_spans = isinstance(solver, PathFollowing) and of_singular_values(norm)
        parts = packed(constraints, self.lanes, shared=shared, in_spans=in_spans)
        return _joined([(part, self._candidates(part.rows, solver, norm, self._solving(part))) for part in parts])

    def _is_for_host(self, constraints: Constraints, solver: InteriorPoint | PathFollowing, norm: Norm) -> bool:
        """Return whether a path is followed in NumPy."""
        few = math.prod(constraints.differences.shape[-3:-1]) <= _ROWS
        if isinstance(solver, InteriorPoint):
            return not few or self.lanes < _COMPILED
        return not few and constraints.penalty is None and runs_on_host(norm)

    def certified(self, constraints: Constraints, candidates: Candidate) -> Solution:
        """Certify lanes, as NumPy arrays."""
        return certify_lanes(constraints, self.norm, candidates, self.tolerance)

    def _candidates(self, constraints: Constraints, solver: Solver, norm: Norm, chunk: int) -> Candidate:
        if isinstance(solver, _ON_HOST):
            lanes = (picked(constraints, i) for i in range(batch.length(constraints)))
            with blas.one_thread():
                return jax.tree.map(lambda *leaves: np.stack(leaves), *(solver(lane, norm) for lane in lanes))
        _, n, m, d = constraints.differences.shape
        short = isinstance(solver, ActiveSet | InteriorPoint)
        if isinstance(solver, PathFollowing):
            # Eigenvalues are what takes long.
            short = not of_singular_values(norm)
        steps = 1 if short else _MORE_STEPS
        over_seeds = partial(batch.over_seeds, effort=effort.solving(self.lanes, n * m + 3 * d, steps))
        if isinstance(solver, Improver) and constraints.penalty is None:
            first = self.proposed(constraints, solver.start, solver.start_norm)
            # It works on the rows' Gram matrix and a tableau of the same size, so half as many lanes fit into the
            # cache.
            width = min(chunk, max(_FEW, chunk // 2))
            return over_seeds(_improving(solver, norm), constraints, first, width=width)
        # Path following handles equalities separately, so it checks whether there are any; the active set does not.
        given = with_kinds(constraints) if isinstance(solver, ActiveSet) else constraints
        return over_seeds(proposing(solver, norm), given, width=chunk)

    def _improved(self, norm: Norm, constraints: Constraints, solver: Improver, first: Candidate) -> Candidate:
        """Follow the path on the host, where LAPACK factors the Newton matrices and nothing is compiled."""
        found = []
        with blas.one_thread():
            # Norms of entries depend on the coordinates.
            shared = isinstance(solver, InteriorPoint) or of_singular_values(norm)
            for part in packed(constraints, None, shared=shared):
                most, start = self.chunk or max(1, _IN_PART // _pairs(part)), part.laid_out(first)
                found.append((part, batch.in_parts(partial(_improve_lanes, solver, norm), part.rows, start, most=most)))
        return _joined(found)

    def _solving(self, part: Packed) -> int:
        """Return how many lanes a solver's program takes: as many as have their Gram matrices in the cache."""
        _, n, m, d = part.rows.differences.shape
        if part.rows.queries[0, 0].nbytes * n * m * d > _LARGE:
            return 1
        return self.chunk or min(self._together(part), self.fits, max(_FEW, _CACHE // _pairs(part)))

    def _together(self, part: Packed) -> int:
        return _TOGETHER if self.lanes > _FEW or part.standard else _FEW


def _pairs(part: Packed) -> int:
    """Return the bytes of a matrix of one lane's rows."""
    return part.rows.differences[0, ..., 0].size ** 2 * part.rows.differences.dtype.itemsize


def _improve_lanes(solver: Improver, norm: Norm, constraints: Constraints, first: Candidate) -> Candidate:
    # Divisions by zero are replaced after they are made, and a path that leaves the finite numbers ends.
    with np.errstate(all="ignore"):
        return solver.improve(constraints, norm, first)


def _joined(found: Sequence[tuple[Packed, Candidate]]) -> Candidate:
    """Return the results for the parts of a batch in the order of its lanes."""
    order = np.argsort(np.concatenate([part.lanes for part, _ in found]))
    return picked(_concatenated([part.spread(one) for part, one in found]), order)


def _concatenated(found: Sequence[Candidate]) -> Candidate:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


# One function object per solver and norm, so that each compiles once.
@lru_cache(maxsize=256)
def proposing(solver: Solver, norm: Norm) -> Callable[[Constraints], Candidate]:
    """Return a solver's answers in a norm as a function of one problem; ValueError if one is not a `Candidate`."""
    return partial(_propose, solver, norm) if isinstance(solver, _ON_HOST) else jax.jit(partial(_propose, solver, norm))


def _propose(solver: Solver, norm: Norm, constraints: Constraints) -> Candidate:
    found = solver(constraints, norm)
    shapes = jax.tree.map(jnp.shape, found._asdict()) if isinstance(found, Candidate) else {}
    (*rows, d), e = constraints.differences.shape, constraints.queries.shape[-1]
    expected = {"W": (d, e), "duals": tuple(rows), "iterations": ()}
    if shapes != expected:
        what = str(shapes) if shapes else type(found).__name__
        raise ValueError(f"solver: expected {solver!r} to return a Candidate of shapes {expected}, found {what}")
    return found


@lru_cache(maxsize=256)
def _improving(solver: Improver, norm: Norm) -> Callable[[Constraints, Candidate], Candidate]:
    return jax.jit(lambda constraints, first: solver.improve(constraints, norm, first))
