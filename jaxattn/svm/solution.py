"""What a solver proposes, and what is reported once the certificate has read it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int

from jaxattn.norms import Norm
from jaxattn.svm.constraints import Constraints

__all__ = ["Candidate", "Solution", "Solver", "Status", "Unique"]


class Status(IntEnum):
    """What the certificate could prove."""

    OPTIMAL = 0
    INFEASIBLE = 1
    NOT_CONVERGED = 2
    STATIONARY = 3

    @property
    def message(self) -> str:
        """One sentence for a person."""
        return {
            Status.OPTIMAL: "optimal: primal and dual value agree to the tolerance, no constraint is violated",
            Status.INFEASIBLE: "infeasible: the duals combine the constraints to nearly zero, so no W of an objective "
            "below `dual` satisfies them; none at all where that is inf",
            Status.NOT_CONVERGED: "not converged: neither optimality nor infeasibility could be proven",
            Status.STATIONARY: "stationary, not certified: W satisfies the first-order conditions of a problem that is "
            "not convex; the gap is that to the bound of the convex one",
        }[self]


class Unique(IntEnum):
    """Whether an optimal solution is known to be the only one (see `unique`)."""

    YES = 0
    NO = 1
    UNKNOWN = 2

    @property
    def message(self) -> str:
        """One sentence for a person."""
        return {
            Unique.YES: "unique: every optimal W is this one, to a relative distance of 1e-3",
            Unique.NO: "not unique: another optimal W is known, at a relative distance of at least 1e-2",
            Unique.UNKNOWN: "uniqueness not certified: neither could be proven",
        }[self]


class Candidate(NamedTuple):
    """A solver's proposal. Nothing in it is believed before the certificate has checked it.

    Attributes:
        W: primal candidate, (d, e), of any length where the rows leave it free (`constraints.worst_margin`).
        duals: multipliers, (n, m), of any length within their bounds (`constraints.rows`); a Farkas proof if
            the problem is infeasible.
        iterations: how many the solver made, ().
    """

    W: Float[Array, "d e"]
    duals: Float[Array, "n m"]
    iterations: Int[Array, ""]


Solver = Callable[[Constraints, Norm], Candidate]


class Solution(NamedTuple):
    """A max-margin solution with its evidence.

    Attributes:
        W: scaled to worst margin 1 where its length is free, (d, e); zero where the problem is infeasible.
        duals: multipliers within their bounds, (n, m), non-negative but for equalities: those that prove
            `dual`, or, where the problem is infeasible, of absolute sum 1 (the Farkas proof).
        primal: the objective at W (its norm, or `||W||^2 / 2`, and the price of its shortfalls), an upper bound
            of the optimal value; inf where W violates a hard row or exceeds the rank.
        dual: a lower bound (see `certificate`): for a norm `<a, b>`, the sum of the duals where all targets
            are 1. What satisfies an infeasible problem is at least so large: inf where the duals combine the rows to
            exactly zero, else above the other numbers by the inverse of `Tolerance.farkas` or more. Under a bound on
            the rank that of the problem without it.
        gap: (primal - dual) / primal; inf where there is no primal value.
        violation: how far the worst hard row falls short of its target at most, at least 0 (see
            `constraints.violation`); inf where the constraints hold numbers that cannot be judged.
        status: a Status as an integer.
        iterations: how many the solver made.
        unique: a Unique as an integer: whether other matrices are optimal too. Directions and correlations mean little
            of a solution that is not unique.
    """

    W: Float[Array, "*batch d e"]
    duals: Float[Array, "*batch n m"]
    primal: Float[Array, "*batch"]
    dual: Float[Array, "*batch"]
    gap: Float[Array, "*batch"]
    violation: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    iterations: Int[Array, "*batch"]
    unique: Int[Array, "*batch"]


@runtime_checkable
class Improver(Protocol):
    """A solver that begins from an answer of the same constraints' problem in another norm.

    `solve_batch` finds that answer by `start`, in a program of its own: a batch that is solved in several
    norms compiles it once.
    """

    @property
    def start(self) -> Solver:
        """The solver of that problem."""
        ...

    @property
    def start_norm(self) -> Norm:
        """Its norm."""
        ...

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose a solution, having found the first answer itself."""
        ...

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Propose a solution, beginning from the first answer."""
        ...
