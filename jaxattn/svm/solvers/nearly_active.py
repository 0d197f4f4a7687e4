"""Internal: solve a problem of many rows by those that its solution meets nearly with equality.

A step of an interior-point method costs the cube of the number of rows, and of thousands a few hundred carry the
solution. Which they are is found with little accuracy, from those that carry the Frobenius solution; the answer to them
alone, with full accuracy, solves the whole problem if it satisfies all rows. If it does not, the rows that it violates
are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool

from jaxattn.svm import constraints as cons
from jaxattn.svm.certificate import tolerance_of
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.pivoting import LAST, positive
from jaxattn.svm.rounding import per_row
from jaxattn.svm.solution import Candidate
from jaxattn.svm.solvers.interior_point import InteriorPoint

# A row is nearly active, or violated, if its margin exceeds its target by less than this share of the largest target.
_NEAR, _VIOLATED = 0.1, -1e-12
# The gap at which searches stop, and their largest number.
_GAP, _SEARCHES = 1e-2, 6

Rows = Bool[np.ndarray, "1 n m"]


def solved(
    improve: Callable[[Constraints, InteriorPoint, Candidate], Candidate],
    constraints: Constraints,
    solver: InteriorPoint,
    first: Candidate,
) -> Candidate:
    """Propose the solution of one problem of hard rows.

    Args:
        improve: returns the solution of some rows, found by a solver from the Frobenius solution of all.
        constraints: NumPy arrays with a leading axis of length 1.
        solver: the interior-point method.
        first: the Frobenius solution, or a proof of infeasibility, which then is the answer.
    """
    of = cons.rows(constraints)
    largest = per_row(positive(np.abs(np.where(of.present, of.targets, 0.0)).max(axis=LAST)))
    loose = replace(solver, sharpness=_GAP / tolerance_of(first.W.dtype).gap)
    found = first

    def attempt(chosen: Any, solver: InteriorPoint) -> tuple[Candidate, Rows, Rows]:
        """Return the solution of some rows, the rows that it meets nearly with equality, and others it violates."""
        some = constraints._replace(present=chosen)
        answer = improve(some, solver, first._replace(iterations=found.iterations))
        W = answer.W / per_row(positive(cons.worst_margin(some, answer.W)))
        over = (cons.margins(constraints, W) - of.targets) / largest
        return answer, of.equal | (of.present & (over < _NEAR)), of.present & ~chosen & (over < _VIOLATED)

    chosen = of.equal | (first.duals > 0)
    for _ in range(_SEARCHES):
        found, chosen, violated = attempt(chosen, loose)
        if not violated.any():
            break
    while True:
        found, near, violated = attempt(chosen, solver)
        if not violated.any():
            return found
        chosen = chosen | near
