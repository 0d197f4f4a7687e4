"""Solve the Att-SVM of plain arrays, without labels or a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxattn.norms import Norm
from jaxattn.problem import Problem, as_array
from jaxattn.svm.certificate import Tolerance
from jaxattn.svm.posing import token_constraints
from jaxattn.svm.solution import Solution, Solver
from jaxattn.svm.solve import solve

__all__ = ["att"]


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
