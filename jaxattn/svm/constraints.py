"""The separation constraints `<A_k, W> >= 1`, with `A_k = (difference of two tokens) (query)^T`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn.problem import Problem, is_concrete
from jaxattn.svm.pivoting import orthonormal


class Constraints(NamedTuple):
    """`differences[i, t]^T W queries[i] >= 1` for all i and t.

    A pytree. Groups share a query; a list of unrelated constraints is the case of one to a group.

    Attributes:
        differences: token differences, (n, m, d).
        queries: the query of each group, (n, d).
    """

    differences: Float[Array, "*batch n m d"]
    queries: Float[Array, "*batch n d"]


def token_constraints(problem: Problem, alpha: Any) -> Constraints:
    """Return the Att-SVM constraints that select token `alpha[i]` in input `i` (2308.16898, eq. Att-SVM).

    The differences `x_i,alpha_i - x_it` run over `t != alpha_i` in increasing order, (n, T-1, d);
    duals and margins keep that order.

    Raises:
        ValueError: alpha of a wrong shape or kind, or outside 0..T-1. Under `jit` and `vmap`, where
            numbers cannot be read, such an alpha gives NaN constraints, which `solve` refuses.
    """
    n, T = problem.n, problem.T
    if is_concrete(alpha) or not hasattr(alpha, "dtype"):
        alpha = np.asarray(alpha)
        if alpha.dtype.kind not in "iu" or alpha.shape != (n,):
            raise ValueError(f"alpha: expected {n} integers, found shape {alpha.shape} of {alpha.dtype}")
        outside = alpha[(alpha < 0) | (alpha >= T)]
        if outside.size:
            raise ValueError(f"alpha: expected tokens 0..{T - 1}, found {outside.tolist()}")
    alpha = jnp.asarray(alpha)
    others = jnp.arange(T - 1)[None, :]
    others = others + (others >= alpha[:, None])
    chosen = jnp.where((alpha >= 0) & (alpha < T), alpha, T)[:, None]
    tokens = jnp.take_along_axis(problem.X, others[..., None], axis=1, mode="fill", fill_value=jnp.nan)
    best = jnp.take_along_axis(problem.X, chosen[..., None], axis=1, mode="fill", fill_value=jnp.nan)
    return Constraints(differences=best - tokens, queries=problem.Z)


def check(constraints: Constraints, batch: int = 0) -> None:
    """Hold the arrays against each other; read their numbers too where that can be done.

    Raises:
        ValueError: shapes other than (n, m, d) and (n, d) behind `batch` batch axes, different
            precisions, NaN or infinity (also from an alpha out of range under `vmap`).
    """
    differences, queries = constraints
    expected = differences.shape[:-2] + differences.shape[-1:]
    if differences.ndim != 3 + batch or queries.shape != expected:
        leading = "batch, " * batch
        raise ValueError(
            f"constraints: expected differences ({leading}n, m, d) and queries ({leading}n, d), "
            f"found {tuple(differences.shape)} and {tuple(queries.shape)}"
        )
    if 0 in differences.shape:
        raise ValueError(f"constraints: expected at least one, found differences of shape {differences.shape}")
    if differences.dtype != queries.dtype or not jnp.issubdtype(differences.dtype, jnp.floating):
        raise ValueError(
            f"constraints: expected one floating-point precision, found {differences.dtype} and {queries.dtype}"
        )
    for name, array in constraints._asdict().items():
        wrong = int((~np.isfinite(np.asarray(array))).sum()) if is_concrete(array) else 0
        if wrong:
            raise ValueError(
                f"constraints: expected finite {name}, found {wrong} NaN or infinite entries "
                "(is every alpha within 0..T-1?)"
            )


def margins(constraints: Constraints, W: Float[Array, "d e"]) -> Float[Array, "n m"]:
    """Return `<A_k, W>` for every constraint, (n, m)."""
    return jnp.einsum("nmd,nd->nm", constraints.differences, constraints.queries @ W.T)


def combination(constraints: Constraints, duals: Float[Array, "n m"]) -> Float[Array, "d e"]:
    """Return `sum_k a_k A_k`, (d, d): the adjoint of `margins`."""
    return jnp.einsum("nmd,nm->nd", constraints.differences, duals).T @ constraints.queries


def lengths(constraints: Constraints) -> Float[Array, "n m"]:
    """Return `||A_k||_F` for every constraint, (n, m)."""
    of_queries = jnp.linalg.norm(constraints.queries, axis=-1)
    return jnp.linalg.norm(constraints.differences, axis=-1) * of_queries[:, None]


def gram(constraints: Constraints) -> Float[Array, "c c"]:
    """Return `<A_k, A_l>` for all pairs, (n m, n m)."""
    differences, queries = constraints
    n, m, d = differences.shape
    flat = differences.reshape(n * m, d)
    return (flat @ flat.T) * jnp.repeat(jnp.repeat(queries @ queries.T, m, axis=0), m, axis=1)


class Reduction(NamedTuple):
    """The same constraints in orthonormal bases of the spans of the differences and of the queries.

    Every unitarily invariant norm has its minimizer between these spans, `W = left W_reduced right^T`.
    """

    constraints: Constraints
    left: Float[Array, "d p"]
    right: Float[Array, "d q"]

    def lift(self, W: Float[Array, "p q"]) -> Float[Array, "d d"]:
        """Return the (d, d) matrix of a reduced one."""
        return self.left @ W @ self.right.T


def reduce(constraints: Constraints) -> Reduction:
    """Express constraints in p = min(d, n m) and q = min(d, n) coordinates."""
    differences, queries = constraints
    n, m, d = differences.shape
    whole = jnp.eye(d, dtype=queries.dtype)
    left = orthonormal(differences.reshape(n * m, d)) if n * m < d else whole
    right = orthonormal(queries) if n < d else whole
    return Reduction(Constraints(differences @ left, queries @ right), left, right)
