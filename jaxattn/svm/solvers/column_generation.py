"""A solver for the norm of sign matrices: a linear program with exact column generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import signs
from jaxattn.norms import Norm, frobenius, sign
from jaxattn.problem import is_concrete
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.solution import Candidate, Solver
from jaxattn.svm.solvers.active_set import ActiveSet

__all__ = ["ColumnGeneration"]


@dataclass(frozen=True)
class ColumnGeneration:
    """Solve `min sum_k lambda_k + penalties  s.t. W = sum_k lambda_k x_k y_k^T` satisfies the rows, with HiGHS.

    The multipliers of the rows determine which sign matrices are missing, by enumeration (see `signs`). Problems are
    solved one after another.

    Attributes:
        most: the largest number of rounds; a problem needs 5 to 20.
        above: the amount by which the multipliers' dual norm may exceed 1.
        start: the solver that proves infeasibility.
    """

    most: int = 200
    above: float = 1e-11
    start: Solver = field(default_factory=ActiveSet)

    def __call__(self, constraints: Constraints, norm: Norm) -> Candidate:
        """Propose the solution, or the Frobenius solver's proof of infeasibility.

        Raises:
            TypeError: called under `jit` or `vmap`.
            ValueError: another norm than `norms.sign`, its square with soft rows, or a matrix with more than 16 rows
                and columns.
        """
        if not is_concrete(constraints.differences):
            raise TypeError("ColumnGeneration: expected arrays of numbers, found tracers; jit and vmap cannot run it")
        if norm.plain != sign:
            raise ValueError(f"ColumnGeneration: expected norm 'sign', found {norm.name!r}")
        differences, queries = (np.asarray(array, dtype=float) for array in constraints[:2])
        (n, m, d), e = differences.shape, queries.shape[1]
        signs.check((d, e))
        of: Any = jax.tree.map(lambda leaf: np.asarray(leaf).ravel(), cons.rows(constraints))
        soft = of.present & ~of.hard
        if norm.power == 2 and soft.any():
            raise ValueError("ColumnGeneration: expected hard rows, or a norm that is not squared, found soft ones")
        lengths = np.asarray(cons.unit_lengths(constraints), float).ravel()
        A = np.einsum("nmd,ne->nmde", differences, queries).reshape(n * m, d * e) / lengths[:, None]
        scale = max(float(np.abs(of.targets[of.present] / lengths[of.present]).max(initial=0.0)), 1e-300)
        b = of.targets / lengths / scale
        equal, above = np.flatnonzero(of.equal & of.present), np.flatnonzero(of.present & ~of.equal)
        # Soft rows may fall short. The penalty refers to the original row, and W is in units of the targets.
        short, price = np.flatnonzero(soft[above]), (of.upper * lengths)[above]
        yields = np.zeros((len(above), len(short)))
        yields[short, np.arange(len(short))] = 1.0
        a, W, rounds = np.zeros(n * m), np.zeros(d * e), 0
        columns = signs.initial_pool(A.sum(axis=0).reshape(d, e))
        while rounds < self.most:
            rounds += 1
            rows = A @ columns
            found = signs.minimized(
                np.concatenate([np.ones(columns.shape[1]), price[short]]),
                A_ub=-np.concatenate([rows[above], yields], axis=1) if len(above) else None,
                b_ub=-b[above] if len(above) else None,
                A_eq=np.concatenate([rows[equal], np.zeros((len(equal), len(short)))], axis=1) if len(equal) else None,
                b_eq=b[equal] if len(equal) else None,
            )
            if found.x is None:
                return self._infeasible(constraints)
            weights = found.x[: columns.shape[1]]
            W, a = columns @ weights, np.zeros(n * m)
            a[above] = -found.ineqlin.marginals if len(above) else 0.0
            a[equal] = found.eqlin.marginals if len(equal) else 0.0
            M = (a @ A).reshape(d, e)
            following = signs.renewed(columns, weights, M, signs.priced(M, 1.0 + self.above))
            if following is None:
                break
            columns = following
        dtype = constraints.differences.dtype
        return Candidate(
            W=jnp.asarray((W * scale).reshape(d, e), dtype),
            duals=jnp.asarray((a / lengths).reshape(n, m), dtype),
            iterations=jnp.asarray(rounds),
        )

    def _infeasible(self, constraints: Constraints) -> Candidate:
        """Return what the other solver proves about the hard rows."""
        first = _compiled(self.start)(jax.tree.map(jnp.asarray, cons.hard_part(constraints)))
        return first._replace(W=jnp.zeros_like(first.W))


# Compile the solver as one program per solver, not step by step.
@lru_cache(maxsize=16)
def _compiled(solver: Solver) -> Callable[[Constraints], Candidate]:
    return jax.jit(lambda constraints: solver(constraints, frobenius))
