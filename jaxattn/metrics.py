"""Direction, margin and rank of matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import lengths, norms
from jaxattn.attention import Factored, Spanned, inner
from jaxattn.lengths import norm
from jaxattn.problem import is_concrete

__all__ = ["correlation", "margin_ratio", "norm", "rank"]

# The value of `svm.Status.OPTIMAL`: this module cannot import `svm`, which is in a higher layer.
_OPTIMAL = 0


def correlation(A: Float[Array, "a b"] | Spanned, B: Float[Array, "a b"] | Spanned) -> Float[Array, ""]:
    """Return the cosine `<A, B> / (||A||_F ||B||_F)`, (), in [-1, 1].

    For `attention.Spanned` no matrix is formed: the Gram matrices of the queries and of the coefficients suffice. The
    cosine with a max-margin solution is meaningful only if that solution is unique (`solution.unique`): other optima
    have other cosines.

    Raises:
        ValueError: other than two matrices of one shape; a zero or non-finite matrix, which has no direction. Under
            `jit` and `vmap`, where numbers cannot be checked, the result for such a matrix is NaN.

    Example:
        >>> float(metrics.correlation(jnp.eye(3), 2 * jnp.eye(3)))
        1.0
    """
    shapes = tuple((C.B.shape[1], C.Z.shape[1]) if isinstance(C, Spanned) else _shape_of_one(C) for C in (A, B))
    if shapes[0] != shapes[1]:
        raise ValueError(f"correlation: expected two matrices of one shape, found {shapes[0]} and {shapes[1]}")
    lengths = tuple(jnp.sqrt(inner(C, C)) if isinstance(C, Spanned) else norm(C) for C in (A, B))
    for name, length in zip("AB", lengths, strict=True):
        if is_concrete(length) and not 0 < length < jnp.inf:
            raise ValueError(f"correlation: expected {name} with a direction, found a matrix of norm {length}")
    if isinstance(A, Spanned) or isinstance(B, Spanned):
        return jnp.clip(inner(A, B) / lengths[0] / lengths[1], -1.0, 1.0)
    return jnp.clip(jnp.sum((A / lengths[0]) * (B / lengths[1])), -1.0, 1.0)


def _shape(A: Any) -> tuple[int, ...]:
    if len(shape := getattr(A, "shape", ())) < 2:
        found = f"{type(A).__name__}, whose matrix is .W" if isinstance(A, Factored | Spanned) else repr(A)
        raise ValueError(f"metrics: expected a matrix, found {found}")
    return shape


def _shape_of_one(A: Any) -> tuple[int, ...]:
    if len(shape := _shape(A)) > 2:
        raise ValueError(f"metrics: expected one matrix, found an array of shape {shape}; use jax.vmap for a batch")
    return shape


def margin_ratio(W: Float[Array, "d e"], constraints: Any, norm: str | norms.Norm, solution: Any) -> Float[Array, ""]:
    """Return the normalized margin of W divided by the largest possible one, (): 1 at a max-margin solution.

    It is `min_k <A_k, W> / b_k / ||W||` divided by the same quantity for the solution. It tells which norm's margin W
    maximizes, even if several matrices attain the maximum and the cosine with one of them is small. It is at most 1, up
    to the solution's certified gap, and negative if W violates a constraint's sign.

    Args:
        W: a matrix of any length.
        constraints: `svm.Constraints`, all hard inequalities with positive targets b_k.
        norm: the norm of the max-margin problem, as a name or a Norm.
        solution: the `svm.Solution` of these constraints in that norm.

    Raises:
        ValueError: W differs in shape from the solution, is zero or is not finite; a constraint is an equality, is
            soft, or has a target that is not positive; the solution is not certified optimal. Under `jit` and `vmap`,
            where numbers cannot be checked, the result is then NaN.

    Example:
        >>> round(float(metrics.margin_ratio(5 * solution.W, constraints, "frobenius", solution)), 9)
        1.0
        >>> bool(metrics.margin_ratio(solution.W, constraints, "nuclear", svm.solve(constraints, norm="nuclear")) < 1)
        True
    """
    shape = _shape_of_one(W)
    for name, value, field in (("constraints", constraints, "differences"), ("solution", solution, "status")):
        if not hasattr(value, field):
            raise ValueError(f"margin_ratio: expected {name} of svm, found {type(value).__name__}")
    if shape != solution.W.shape:
        raise ValueError(f"margin_ratio: expected W of the solution's shape {solution.W.shape}, found {shape}")
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
    """Return the number of singular values that exceed `rtol` times the largest, ().

    The threshold is relative, unlike the absolute 1e-7 of the published rank figure: `c W` has the rank of `W`, and a
    zero matrix has rank 0.

    Example:
        >>> int(metrics.rank(jnp.diag(jnp.array([1.0, 1e-3, 1e-9]))))
        2
    """
    _shape(W)
    return rank_of(jnp.linalg.svd(W, compute_uv=False), rtol)


def rank_of(singular_values: Any, rtol: float = 1e-6) -> Any:
    """Return the rank of each matrix, (...), from its singular values in decreasing order, (..., k)."""
    return (singular_values > rtol * singular_values[..., :1]).sum(axis=-1)
