"""Measures of direction, margin and rank of matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import lengths, norms
from jaxattn.attention import Spanned, inner
from jaxattn.lengths import norm
from jaxattn.problem import is_concrete

__all__ = ["correlation", "margin_ratio", "norm", "rank"]

# `svm.Status.OPTIMAL`: what solves and certifies stands above this module.
_OPTIMAL = 0


def correlation(A: Float[Array, "a b"] | Spanned, B: Float[Array, "a b"] | Spanned) -> Float[Array, ""]:
    """Return `<A, B> / (||A||_F ||B||_F)`, (), in [-1, 1].

    Of `attention.Spanned` no matrix is formed: the Gram matrices of the queries and of the coefficients suffice.
    With a max-margin solution it means little unless that is unique (`solution.unique`): another optimum of the same
    problem has another correlation.

    Raises:
        ValueError: different shapes; a zero or non-finite matrix, which has no direction. Under
            `jit` and `vmap`, where numbers cannot be read, such a lane is NaN: select it away.

    Example:
        >>> float(metrics.correlation(jnp.eye(3), 2 * jnp.eye(3)))
        1.0
    """
    if (shapes := (_shape(A), _shape(B)))[0] != shapes[1]:
        raise ValueError(f"correlation: expected two matrices of one shape, found {shapes[0]} and {shapes[1]}")
    lengths = tuple(jnp.sqrt(inner(C, C)) if isinstance(C, Spanned) else norm(C) for C in (A, B))
    for name, length in zip("AB", lengths, strict=True):
        if is_concrete(length) and not 0 < length < jnp.inf:
            raise ValueError(f"correlation: expected {name} with a direction, found a matrix of norm {length}")
    if isinstance(A, Spanned) or isinstance(B, Spanned):
        return jnp.clip(inner(A, B) / lengths[0] / lengths[1], -1.0, 1.0)
    return jnp.clip(jnp.sum((A / lengths[0]) * (B / lengths[1])), -1.0, 1.0)


def _shape(A: Array | Spanned) -> tuple[int, ...]:
    if isinstance(A, Spanned):
        return A.B.shape[-1], A.Z.shape[-1]
    if len(shape := getattr(A, "shape", ())) < 2:
        raise ValueError(f"metrics: expected a matrix, found {A!r}")
    return shape


def margin_ratio(W: Float[Array, "d e"], constraints: Any, norm: str | norms.Norm, solution: Any) -> Float[Array, ""]:
    """Return the margin of W for its length, as a share of the largest there is, (): 1 at a max-margin solution.

    `min_k <A_k, W> / b_k / ||W||`, divided by the same of the solution: it tells which norm's margin W maximizes, also
    where several matrices do, and a cosine with one of them would be small. At most 1 up to the solution's certified
    gap; negative where W violates a row's sign.

    Args:
        W: of any length.
        constraints: `svm.Constraints`, all of them hard inequalities with positive targets b_k.
        norm: of the max-margin problem; a name or a Norm.
        solution: `svm.Solution` of these constraints in that norm.

    Raises:
        ValueError: W of another shape than the solution, zero or not finite; equalities, soft rows or targets that are
            not positive, where the margin is no share; a solution that is not certified optimal. Under `jit` and
            `vmap`, where numbers cannot be read, such a lane is NaN: select it away.

    Example:
        >>> round(float(metrics.margin_ratio(5 * solution.W, constraints, "frobenius", solution)), 9)
        1.0
        >>> bool(metrics.margin_ratio(solution.W, constraints, "nuclear", svm.solve(constraints, norm="nuclear")) < 1)
        True
    """
    for name, value, field in (("constraints", constraints, "differences"), ("solution", solution, "status")):
        if not hasattr(value, field):
            raise ValueError(f"margin_ratio: expected {name} of svm, found {type(value).__name__}")
    if W.shape != solution.W.shape:
        raise ValueError(f"margin_ratio: expected W of the solution's shape {solution.W.shape}, found {W.shape}")
    length = lengths.norm(W)
    if is_concrete(length) and not 0 < length < jnp.inf:
        raise ValueError(f"margin_ratio: expected W with a direction, found a matrix of norm {length}")
    if is_concrete(solution.status) and int(solution.status) != _OPTIMAL:
        raise ValueError(
            f"margin_ratio: expected a solution that is certified optimal, found status {int(solution.status)}"
        )
    present, targets = constraints.present, constraints.targets
    present = jnp.ones(constraints.differences.shape[:-1], bool) if present is None else present
    targets = jnp.ones_like(constraints.differences[..., 0]) if targets is None else targets
    share = jnp.where(present, targets > 0, True)
    if constraints.equal is not None:
        share = share & ~(present & constraints.equal)
    if constraints.penalty is not None:
        share = share & ~(present & jnp.isfinite(constraints.penalty))
    if is_concrete(share) and not share.all():
        raise ValueError(
            "margin_ratio: expected hard inequalities with positive targets, found "
            f"{int((~share).sum())} rows that are equalities, soft, or have another target"
        )
    value = norms.named(norm).plain.value

    def margin(V: Array) -> Array:
        V = V / lengths.norm(V)
        rows = jnp.einsum("nmd,nd->nm", constraints.differences, constraints.queries @ V.T)
        return jnp.min(jnp.where(present, rows / jnp.where(share, targets, 1.0), jnp.inf)) / value(V)

    known = share.all() & (solution.status == _OPTIMAL) & (length > 0) & jnp.isfinite(length)
    return jnp.where(known, margin(W) / margin(solution.W), jnp.nan)


def rank(W: Float[Array, "a b"], rtol: float = 1e-6) -> Int[Array, ""]:
    """Return how many singular values exceed `rtol` times the largest, ().

    Relative, unlike the absolute 1e-7 of the published rank figure: the rank of `c W` is that of `W`,
    and of a zero matrix 0.

    Example:
        >>> int(metrics.rank(jnp.diag(jnp.array([1.0, 1e-3, 1e-9]))))
        2
    """
    _shape(W)
    return rank_of(jnp.linalg.svd(W, compute_uv=False), rtol)


def rank_of(singular_values: Any, rtol: float = 1e-6) -> Any:
    """Return the rank of matrices by their singular values, (..., k), the largest first: as `rank` does, (...)."""
    return (singular_values > rtol * singular_values[..., :1]).sum(axis=-1)
