"""Candidates that solvers propose, and certified solutions."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int

from jaxattn.norms import Norm
from jaxattn.svm.constraints import Constraints

__all__ = ["Candidate", "Solution", "Solver", "Status", "Unique"]


class Status(IntEnum):
    """What the certificate proved."""

    OPTIMAL = 0
    INFEASIBLE = 1
    NOT_CONVERGED = 2
    STATIONARY = 3

    @property
    def message(self) -> str:
        """A one-sentence explanation."""
        return {
            Status.OPTIMAL: "optimal: primal and dual value agree to the tolerance, no constraint is violated",
            Status.INFEASIBLE: "infeasible: the duals combine the constraints to nearly zero, so no W of an objective "
            "below `dual` satisfies them; none at all where that is inf",
            Status.NOT_CONVERGED: "not converged: neither optimality nor infeasibility could be proven",
            Status.STATIONARY: "stationary, not certified: W satisfies the first-order conditions of a problem that is "
            "not convex; the gap is that to the bound of the convex one",
        }[self]


class Unique(IntEnum):
    """Whether an optimal solution is known to be the only one (see `uniqueness`)."""

    YES = 0
    NO = 1
    UNKNOWN = 2

    @property
    def message(self) -> str:
        """A one-sentence explanation."""
        return {
            Unique.YES: "unique: every optimal W is this one, to a relative distance of 1e-3",
            Unique.NO: "not unique: another optimal W is known, at a relative distance of at least 1e-2",
            Unique.UNKNOWN: "uniqueness not certified: neither could be proven",
        }[self]


class Candidate(NamedTuple):
    """A solver's proposal, which the certificate checks.

    Attributes:
        W: the primal candidate, (d, e), at any scale if the constraints allow it (`constraints.worst_margin`).
        duals: multipliers, (n, m), at any scale within their bounds (`constraints.rows`); if the problem is infeasible,
            a Farkas proof.
        iterations: the number of the solver's iterations, ().
    """

    W: Float[Array, "d e"]
    duals: Float[Array, "n m"]
    iterations: Int[Array, ""]


Solver = Callable[[Constraints, Norm], Candidate]


class Solution(NamedTuple):
    """A max-margin solution with its evidence.

    Attributes:
        W: the solution, (d, e), scaled to worst margin 1 if the constraints leave its scale free; zero if the problem
            is infeasible.
        duals: multipliers within their bounds, (n, m), non-negative except for equalities: those that prove `dual`, or,
            if the problem is infeasible, a Farkas proof with absolute sum 1.
        primal: the objective at W (its norm, or `||W||^2 / 2`, plus the cost of shortfalls), an upper bound of the
            optimal value; inf if W violates a hard constraint or exceeds the rank.
        dual: a lower bound of the optimal value (see `certificate`): for a norm `<a, b>`, which is the sum of the duals
            if all targets are 1. For an infeasible problem, any W that satisfies the constraints would have an
            objective of at least this: inf if the duals combine the constraints to exactly zero, else larger than the
            other numbers by the inverse of `Tolerance.farkas` or more. With a rank bound, the lower bound of the
            problem without it.
        gap: (primal - dual) / primal; inf without a primal value.
        violation: an upper bound of the largest shortfall of a hard constraint, at least 0 (see
            `constraints.violation`); inf if the constraints contain numbers that cannot be judged.
        status: a Status as an integer.
        iterations: the number of the solver's iterations.
        unique: a Unique as an integer: whether other matrices are optimal too. The direction of a solution that is not
            unique is arbitrary, and so are cosines with it.
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
    """A solver that starts from a solution of the same constraints in another norm.

    `solve_batch` computes that solution with `start`, in a separate program, which is compiled once even if a batch is
    solved in several norms.
    """

    @property
    def start(self) -> Solver:
        """The solver for the other norm."""
        ...

    @property
    def start_norm(self) -> Norm:
        """The other norm."""
        ...

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose a solution, computing the first one itself."""
        ...

    def improve(self, constraints: Constraints, norm: Norm, first: Candidate) -> Candidate:
        """Propose a solution, starting from the first one."""
        ...
