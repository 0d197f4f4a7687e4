"""Max-margin problems built backwards: first the solution and its multipliers, then the tokens.

A pair (W, a) with `a >= 0`, margins `<A_k, W> >= 1` and `sum_k a_k A_k` a subgradient of the norm at W, with
`a_k = 0` wherever the margin exceeds 1, is optimal: the answer is known before any solver has run.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxattn import svm


class Constructed(NamedTuple):
    """Constraints with the known solution, multipliers (to sum to the value), and value."""

    constraints: svm.Constraints
    W: np.ndarray
    duals: np.ndarray
    value: float


def frobenius(seed: int, n: int = 3, m: int = 3, d: int = 5, support: int = 2) -> Constructed:
    """`W = sum a_k A_k`, with `support` support constraints in each of the n groups."""
    rng = np.random.default_rng(seed)
    while True:
        queries, differences, duals = rng.normal(size=(n, d)), rng.normal(size=(n, m, d)), np.zeros((n, m))
        duals[:, :support] = rng.uniform(0.5, 2.0, size=(n, support))
        W = np.einsum("nm,nmd,ne->de", duals, differences, queries)
        margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
        if np.all(margins[:, :support] > 0.2):
            break
    # Support constraints of margin exactly 1: what divides A_k multiplies its multiplier.
    differences[:, :support] /= margins[:, :support, None]
    duals[:, :support] *= margins[:, :support]
    _lift_margins(differences[:, support:], W, queries)
    return _constructed(differences, queries, W, duals, np.linalg.norm(W))


def nuclear(seed: int, n: int = 3, m: int = 3, d: int = 5, r: int = 2) -> Constructed:
    """`W = U diag(s) V^T` of rank r, and `sum a_k A_k = U V^T + M` with M between the complements, of norm 0.8.

    The n support constraints, one in each group, fix W among the matrices `U S V^T` (S symmetric), the
    only ones that have this subgradient, where `r (r + 1) / 2 <= n`.
    """
    rng = np.random.default_rng(seed)
    while True:
        queries = rng.normal(size=(n, d))
        span = np.linalg.qr(queries.T)[0]
        left, right = np.linalg.qr(rng.normal(size=(d, d)))[0], span @ np.linalg.qr(rng.normal(size=(n, n)))[0]
        W = left[:, :r] @ np.diag(rng.uniform(1.0, 3.0, r)) @ right[:, :r].T
        subgradient = left[:, :r] @ right[:, :r].T + 0.8 * left[:, r:n] @ right[:, r:n].T
        # subgradient = sum_i g_i z_i^T, and g_i = a_i (difference of margin 1).
        parts = (subgradient @ np.linalg.pinv(queries)).T
        margins = np.einsum("nd,de,ne->n", parts, W, queries)
        if np.all(margins > 0.2):
            break
    differences, duals = rng.normal(size=(n, m, d)), np.zeros((n, m))
    differences[:, 0], duals[:, 0] = parts / margins[:, None], margins
    _lift_margins(differences[:, 1:], W, queries)
    return _constructed(differences, queries, W, duals, np.linalg.norm(W, "nuc"))


def _lift_margins(differences: np.ndarray, W: np.ndarray, queries: np.ndarray) -> None:
    """Move each difference along `W z` until its margin is at least 1.5, in place."""
    along = queries @ W.T
    margins = np.einsum("nmd,nd->nm", differences, along)
    missing = np.maximum(1.5 - margins, 0.0) / np.sum(along**2, axis=1)[:, None]
    differences += missing[..., None] * along[:, None, :]


def _constructed(differences, queries, W, duals, value) -> Constructed:
    constraints = svm.Constraints(jnp.asarray(differences), jnp.asarray(queries))
    return Constructed(constraints, W, duals * value / duals.sum(), float(value))


def mixed(seed: int, norm: svm.Norm, n: int = 3, m: int = 3, d: int = 5) -> Constructed:
    """Rows of every kind, for the Frobenius or the nuclear norm, squared or not.

    First tokens, queries and multipliers: W is along the (top singular pair of the) combination of the
    rows, and the targets are what complementarity asks for at W. In random places, each at least once where
    n m >= 7: hard rows that are tight (kind 0) and slack, equalities, soft rows with a multiplier inside
    its bounds, at the price and at zero, and absent ones.
    """
    rng = np.random.default_rng(seed)
    queries, differences = rng.normal(size=(n, d)), rng.normal(size=(n, m, d))
    kind = rng.permutation(np.arange(n * m) % 7).reshape(n, m)
    slack, equal, inside, bound, idle, absent = (kind == k for k in range(1, 7))
    duals = rng.uniform(0.5, 2.0, size=(n, m))
    duals[slack | idle | absent] = 0.0
    duals[equal] *= rng.choice([-1.0, 1.0], size=int(equal.sum()))
    M = np.einsum("nm,nmd,ne->de", duals, differences, queries)
    left, s, right = np.linalg.svd(M)
    frobenius = norm.plain == svm.frobenius
    size = np.linalg.norm(M) if frobenius else s[0]
    along = M / size if frobenius else np.outer(left[:, 0], right[0])
    if norm.power == 2:
        W = size * along
    else:
        duals, W = duals / size, rng.uniform(0.5, 3.0) * along
    margins = np.einsum("nmd,de,ne->nm", differences, W, queries)
    length = np.linalg.norm(W) if frobenius else np.linalg.norm(W, "nuc")
    away = rng.uniform(0.2, 1.0, size=(n, m))
    targets = margins + away * (1.0 * bound - 1.0 * (slack | idle)) + 100.0 * absent
    penalty = np.where(inside | idle, np.abs(duals) + away, np.where(bound, duals, np.inf))
    price = np.sum((penalty * away)[bound])
    value = (length**2 / 2 if norm.power == 2 else length) + price
    rows = svm.Constraints(
        *map(jnp.asarray, (differences, queries, targets)),
        equal=jnp.asarray(equal),
        present=jnp.asarray(~absent),
        penalty=jnp.asarray(penalty),
    )
    return Constructed(rows, W, duals, float(value))
