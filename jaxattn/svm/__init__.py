"""Certified solutions of max-margin problems with linear constraints on a matrix; usable on its own.

`solve` and `solve_batch` pass the constraints to a solver (a value: `ActiveSet`, `InteriorPoint`, `PathFollowing`,
`WorkingSet`, `LowRank`, `ColumnGeneration`, `Cvxpy`, or any function from the constraints and a norm to a `Candidate`),
and return the answer with what the certificate proves about it.
"""

from jaxattn.norms import (
    Norm,
    columns,
    entrywise,
    frobenius,
    gamma2,
    nuclear,
    nuclear_of_rank,
    rows,
    schatten,
    sign,
    spectral,
    squared,
)
from jaxattn.svm.certificate import DOUBLE, SINGLE, Tolerance, certify
from jaxattn.svm.constraint_builders import (
    finite_constraints,
    listed,
    prompt_constraints,
    set_constraints,
    soft,
    token_constraints,
    with_finite_part,
)
from jaxattn.svm.constraints import Constraints, combination, margins
from jaxattn.svm.solution import Candidate, Solution, Solver, Status, Unique
from jaxattn.svm.solve import att, solve, solve_batch, with_uniqueness
from jaxattn.svm.solvers.active_set import ActiveSet
from jaxattn.svm.solvers.column_generation import ColumnGeneration
from jaxattn.svm.solvers.interior_point import InteriorPoint
from jaxattn.svm.solvers.low_rank import LowRank
from jaxattn.svm.solvers.oracle import Cvxpy
from jaxattn.svm.solvers.path_following import PathFollowing
from jaxattn.svm.solvers.working_set import WorkingSet
from jaxattn.svm.stationarity import stationarity

__all__ = [
    "DOUBLE",
    "SINGLE",
    "ActiveSet",
    "Candidate",
    "ColumnGeneration",
    "Constraints",
    "Cvxpy",
    "InteriorPoint",
    "LowRank",
    "Norm",
    "PathFollowing",
    "Solution",
    "Solver",
    "Status",
    "Tolerance",
    "Unique",
    "WorkingSet",
    "att",
    "certify",
    "columns",
    "combination",
    "entrywise",
    "finite_constraints",
    "frobenius",
    "gamma2",
    "listed",
    "margins",
    "nuclear",
    "nuclear_of_rank",
    "prompt_constraints",
    "rows",
    "schatten",
    "set_constraints",
    "sign",
    "soft",
    "solve",
    "solve_batch",
    "spectral",
    "squared",
    "stationarity",
    "token_constraints",
    "with_finite_part",
    "with_uniqueness",
]
