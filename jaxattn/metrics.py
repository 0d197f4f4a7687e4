"""Measures of direction and rank of matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn.attention import Spanned, inner
from jaxattn.problem import is_concrete

__all__ = ["correlation", "norm", "rank"]


def norm(A: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries, (), without under- or overflow of their squares.

    Example:
        >>> bool(jnp.isclose(metrics.norm(jnp.array([3e200, 4e200])), 5e200, rtol=1e-12))
        True
    """
    largest = jnp.max(jnp.abs(A))
    scale = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.sqrt(jnp.sum((A / scale) ** 2))


def correlation(A: Float[Array, "a b"] | Spanned, B: Float[Array, "a b"] | Spanned) -> Float[Array, ""]:
    """Return `<A, B> / (||A||_F ||B||_F)`, (), in [-1, 1].

    Of `attention.Spanned` no matrix is formed: the Gram matrices of the queries and of the coefficients suffice.

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
    return (A.B.shape[-1], A.Z.shape[-1]) if isinstance(A, Spanned) else A.shape


def rank(W: Float[Array, "a b"], rtol: float = 1e-6) -> Int[Array, ""]:
    """Return how many singular values exceed `rtol` times the largest, ().

    Relative, unlike the absolute 1e-7 of the published rank figure: the rank of `c W` is that of `W`,
    and of a zero matrix 0.

    Example:
        >>> int(metrics.rank(jnp.diag(jnp.array([1.0, 1e-3, 1e-9]))))
        2
    """
    return rank_of(jnp.linalg.svd(W, compute_uv=False), rtol)


def rank_of(singular_values: Any, rtol: float = 1e-6) -> Any:
    """Return the rank of matrices by their singular values, (..., k), the largest first: as `rank` does, (...)."""
    return (singular_values > rtol * singular_values[..., :1]).sum(axis=-1)
