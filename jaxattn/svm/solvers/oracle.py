"""CVXPY as a solver value: slow and general, used as an independent reference in tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn.norms import Entrywise, Lengths, Norm, frobenius, nuclear, spectral
from jaxattn.problem import is_concrete
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate

__all__ = ["Cvxpy"]

# CVXPY's expression of each norm; for a norm of your own pass `Cvxpy(atom=...)`.
_ATOMS: dict[Norm, Callable[[Any, Any], Any]] = {
    frobenius: lambda cp, W: cp.norm(W, "fro"),
    nuclear: lambda cp, W: cp.normNuc(W),
    spectral: lambda cp, W: cp.sigma_max(W),
}


@dataclass(frozen=True)
class Cvxpy:
    """Solve with CVXPY, one problem at a time, on the host.

    Attributes:
        solver: CVXPY's name of the solver to use.
        atom: the norm as a CVXPY expression, a function of the module `cvxpy` and the variable. Default: the expression
            for a norm of this package.
    """

    solver: str = "CLARABEL"
    atom: Callable[[Any, Any], Any] | None = None

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution of CVXPY; zero matrices if it returns none.

        For an infeasible problem the multipliers come from a second, bounded problem: the combination of the hard rows
        that is closest to zero.

        Raises:
            ImportError: CVXPY is not installed.
            TypeError: called under `jit` or `vmap`.
            ValueError: a solver that is not installed, a norm without a CVXPY expression.
        """
        import cvxpy as cp

        # CVXPY has one error for a solver that is missing and for one that fails.
        if self.solver not in (installed := cp.installed_solvers()):
            raise ValueError(f"Cvxpy: expected one of the installed solvers {installed}, found {self.solver!r}")

        if not is_concrete(constraints.differences):
            raise TypeError("Cvxpy: expected arrays of numbers, found tracers; it cannot run under jit or vmap")
        atom = self.atom or _atom(norm.plain)
        differences, queries = (np.asarray(array, dtype=float) for array in constraints[:2])
        (n, m, d), e = differences.shape, queries.shape[1]
        A = np.einsum("nmd,ne->nmde", differences, queries).reshape(n * m, d * e)
        of: Any = jax.tree.map(lambda leaf: np.asarray(leaf).ravel(), cons.rows(constraints))
        equal, soft = np.flatnonzero(of.equal), np.flatnonzero(of.present & ~of.hard)
        above = np.flatnonzero(of.hard & ~of.equal)

        W, shortfall = cp.Variable((d, e)), cp.Variable(n * m, nonneg=True)
        margins: Any = A @ cp.vec(W, order="C")
        asked: dict[str, tuple[np.ndarray, Any]] = {}
        if above.size:
            asked["above"] = above, margins[above] >= of.targets[above]
        if equal.size:
            asked["equal"] = equal, margins[equal] == of.targets[equal]
        objective = atom(cp, W) if norm.power == 1 else cp.square(atom(cp, W)) / 2
        if soft.size:
            asked["soft"] = soft, margins[soft] + shortfall[soft] >= of.targets[soft]
            objective = objective + of.upper[soft] @ shortfall[soft]
        iterations = self._solve(cp, cp.Problem(cp.Minimize(objective), [one for _, one in asked.values()]))
        found = {name: one.dual_value for name, (_, one) in asked.items()}
        if all(duals is not None for duals in found.values()):
            # If the problem is infeasible these are the solver's own proof, and there is no W.
            a = np.zeros(n * m)
            for name, (which, _) in asked.items():
                # CVXPY's multiplier of an equation has the opposite sign.
                a[which] = -found[name] if name == "equal" else found[name]
            return _candidate(constraints, np.zeros((d, e)) if W.value is None else W.value, a, iterations)
        u, soft = cp.Variable(n * m), np.flatnonzero(~of.hard)
        bounded: list[Any] = [of.targets @ u == 1]
        bounded += [u[above] >= 0] * bool(above.size) + [u[soft] == 0] * bool(soft.size)
        iterations += self._solve(cp, cp.Problem(cp.Minimize(cp.sum_squares(A.T @ u)), bounded))
        duals = np.zeros(n * m) if u.value is None else u.value
        return _candidate(constraints, np.zeros((d, e)), duals, iterations)

    def _solve(self, cp: Any, problem: Any) -> int:
        try:
            problem.solve(solver=self.solver)
        except cp.error.SolverError:
            return 0  # No answer to certify: the certificate reports "not converged".
        statistics = problem.solver_stats
        return int(statistics.num_iters or 0) if statistics is not None else 0


def _atom(norm: Norm) -> Callable[[Any, Any], Any]:
    if isinstance(norm, Entrywise):
        p = float(norm.p)
        return lambda cp, W: cp.pnorm(cp.vec(W, order="C"), "inf" if p == float("inf") else p)
    if isinstance(norm, Lengths):
        axis, whole = 0 if norm.turned else 1, "sum" if norm.p == 1 else "max"
        return lambda cp, W: getattr(cp, whole)(cp.norm(W, 2, axis=axis))
    if norm not in _ATOMS:
        known = sorted(known.name for known in _ATOMS)
        raise ValueError(
            f"Cvxpy: expected a norm among {known}, an entrywise one, one of rows or columns or an atom, "
            f"found {norm.name!r}"
        )
    return _ATOMS[norm]


def _candidate(constraints: Constraints, W: np.ndarray, duals: np.ndarray, iterations: int) -> Candidate:
    dtype = constraints.differences.dtype
    shape = constraints.differences.shape[:2]
    return Candidate(
        W=jnp.asarray(W, dtype),
        duals=jnp.asarray(np.reshape(duals, shape), dtype),
        iterations=jnp.asarray(iterations),
    )
