"""CVXPY as a solver value: slow, general, and the outside witness of the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxattn.problem import is_concrete
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.norms import Norm
from jaxattn.svm.solution import Candidate

# CVXPY's name for each norm; a norm of the user's own is given as `Cvxpy(atom=...)`.
_ATOMS = {"frobenius": lambda cp, W: cp.norm(W, "fro"), "nuclear": lambda cp, W: cp.normNuc(W)}


@dataclass(frozen=True)
class Cvxpy:
    """Solve with CVXPY, one problem at a time, on the host.

    Attributes:
        solver: CVXPY's name of the solver behind it.
        atom: the norm as CVXPY expresses it, a function of the module `cvxpy` and the variable;
            None for the norms this package names.
    """

    solver: str = "CLARABEL"
    atom: Callable[[Any, Any], Any] | None = None

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose what CVXPY returns; zero matrices where it returns nothing.

        An infeasible problem's multipliers are found by a second, bounded problem: the combination
        of the constraints that is closest to zero.

        Raises:
            ImportError: CVXPY is not installed.
            TypeError: called under `jit` or `vmap`.
            ValueError: a norm that this solver has no expression of.
        """
        import cvxpy as cp

        if not is_concrete(constraints.differences):
            raise TypeError("Cvxpy: expected arrays of numbers, found tracers; it cannot run under jit or vmap")
        atom = self.atom or _ATOMS.get(norm.name)
        if atom is None:
            raise ValueError(f"Cvxpy: expected a norm among {sorted(_ATOMS)} or an atom, found {norm.name!r}")
        differences, queries = (np.asarray(array, dtype=float) for array in constraints)
        n, m, d = differences.shape
        A = np.einsum("nmd,ne->nmde", differences, queries).reshape(n * m, d * d)

        W = cp.Variable((d, d))
        separation: Any = A @ cp.vec(W, order="C") >= 1
        iterations = self._solve(cp, cp.Problem(cp.Minimize(atom(cp, W)), list[Any]([separation])))
        if separation.dual_value is not None:
            # Where the problem is infeasible these are the solver's own proof, and there is no W.
            return _candidate(
                constraints, np.zeros((d, d)) if W.value is None else W.value, separation.dual_value, iterations
            )
        u = cp.Variable(n * m, nonneg=True)
        bounded: list[Any] = [cp.sum(u) == 1]
        iterations += self._solve(cp, cp.Problem(cp.Minimize(cp.sum_squares(A.T @ u)), bounded))
        duals = np.zeros(n * m) if u.value is None else u.value
        return _candidate(constraints, np.zeros((d, d)), duals, iterations)

    def _solve(self, cp: Any, problem: Any) -> int:
        try:
            problem.solve(solver=self.solver)
        except cp.error.SolverError:
            return 0  # No answer to certify: the certificate reports "not converged".
        statistics = problem.solver_stats
        return int(statistics.num_iters or 0) if statistics is not None else 0


def _candidate(constraints: Constraints, W: np.ndarray, duals: np.ndarray, iterations: int) -> Candidate:
    dtype = constraints.differences.dtype
    shape = constraints.differences.shape[:2]
    return Candidate(
        W=jnp.asarray(W, dtype),
        duals=jnp.asarray(np.reshape(duals, shape), dtype),
        iterations=jnp.asarray(iterations),
    )
