"""Test whether a matrix of bounded rank is a stationary point of the nuclear norm with that bound.

In `W = K Q^T`, K and Q of m columns, the problem is `min (||K||_F^2 + ||Q||_F^2) / 2  s.t. <A_k, K Q^T> >= b_k`. Its
first-order conditions are `K = G Q`, `Q = G^T K` with `G = sum_k a_k A_k`, `a >= 0` (any sign for an equality) and `a_k
= 0` if the margin exceeds b_k. With the thin SVD `W = U S V^T` they are `G V = U` and `G^T U = V`; if also `||G|| <=
1`, W is optimal among all matrices. The multipliers are computed here from W alone, not taken from a solver.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn import metrics
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints
from jaxattn.svm.least_squares import least_squares
from jaxattn.svm.pivoting import AnyArray, positive

__all__ = ["stationarity"]


class Stationarity(NamedTuple):
    """How far W is from a stationary point of rank m.

    Attributes:
        duals: multipliers a of the rows that are tight at W, (n, m); 0 for the other rows.
        residual: `||(G Q - K, G^T K - Q)||_F / ||(K, Q)||_F`, ().
        excess: the (m + 1)-th singular value divided by the first, (); 0 if there is none.
    """

    duals: Float[Array, "n m"]
    residual: Float[Array, ""]
    excess: Float[Array, ""]


def stationarity(constraints: Constraints, W: Float[Array, "d e"], m: int, tight: float = 1e-7) -> Stationarity:
    """Measure how far W is from a stationary point of `min ||W||_*` under the constraints and rank W <= m.

    Feasibility is not checked (see `constraints.violation`).

    Args:
        constraints: hard rows of any kind.
        W: any matrix, at the scale of the problem.
        m: the rank bound.
        tight: a row counts as tight if its margin exceeds its target by at most this fraction of the largest target.

    Raises:
        ValueError: there are soft rows.

    Example:
        >>> narrow = svm.solve(constraints, norm=norms.nuclear_of_rank(2))
        >>> residual = svm.stationarity(constraints, narrow.W, m=2)
    """
    refuse_soft(constraints, "stationarity")
    U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
    root = jnp.sqrt(s[:m])[None, :]
    K, Q = U[:, :m] * root, Vt[:m].T * root
    of = cons.rows(constraints)
    lengths = cons.unit_lengths(constraints)
    unit = constraints._replace(differences=constraints.differences / lengths[..., None])
    over = cons.margins(constraints, W) - of.targets
    allowed = tight * jnp.max(jnp.where(of.present, jnp.abs(of.targets), 0.0))
    at = of._replace(present=of.present & (of.equal | (over <= allowed)))
    J = rows_of_factors(unit, K, Q)
    size = positive(metrics.norm(root))
    # Scale `(K, Q)` to length 1, which makes the multipliers about 1.
    gram, reached = J.gram / size**2, J.reached / size**2
    found = least_squares(
        gram, 2 * jnp.where(at.present.ravel(), reached, 0.0), at, jnp.zeros_like(reached), 6 * reached.size
    )
    a = jnp.where(at.present, found.u.reshape(of.targets.shape), 0.0)
    G = cons.combination(unit, a)
    residual = metrics.norm(jnp.concatenate([G @ Q - K, G.T @ K - Q])) / (jnp.sqrt(2.0) * size)
    excess = s[m] / positive(s[0]) if s.size > m else jnp.zeros((), W.dtype)
    return Stationarity(a / lengths, residual, excess)


def is_of_rank(found: Stationarity, W: Float[AnyArray, "*lanes d e"]) -> Bool[AnyArray, "*lanes"]:
    """Return whether the singular values of W beyond its rank are rounding errors of a product of factors."""
    return found.excess <= 16 * max(W.shape[-2:]) * jnp.finfo(W.dtype).eps


class FactorRows(NamedTuple):
    """The rows in terms of (K, Q): `<J_k, (K, Q)> = 2 <A_k, K Q^T>` with `J_k = (A_k Q, A_k^T K)`.

    Attributes:
        left: `K^T (difference)`, (c, r).
        right: `Q^T (query)`, (c, r).
        gram: `<J_k, J_l>`, (c, c).
        reached: `<A_k, K Q^T>`, (c).
    """

    left: Float[Array, "c r"]
    right: Float[Array, "c r"]
    gram: Float[Array, "c c"]
    reached: Float[Array, " c"]


def rows_of_factors(rows: Constraints, K: Float[Array, "p r"], Q: Float[Array, "q r"]) -> FactorRows:
    """Return the rows in terms of the factors."""
    n, m, p = rows.differences.shape
    flat, queries = rows.differences.reshape(n * m, p), jnp.repeat(rows.queries, m, axis=0)
    left, right = flat @ K, queries @ Q
    gram = (flat @ flat.T) * (right @ right.T) + (queries @ queries.T) * (left @ left.T)
    return FactorRows(left, right, gram, jnp.sum(left * right, axis=1))


def refuse_soft(constraints: Constraints, who: str) -> None:
    """Raise ValueError in the name of the caller, `who`, if there are soft rows."""
    if constraints.penalty is not None:
        raise ValueError(f"{who}: expected hard rows under a bound on the rank, found a penalty")
