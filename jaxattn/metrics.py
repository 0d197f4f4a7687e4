"""Measures of direction and rank of matrices."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn.problem import is_concrete


def norm(A: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries, (), without under- or overflow of their squares."""
    largest = jnp.max(jnp.abs(A))
    scale = jnp.where(largest > 0, largest, 1.0)
    return largest * jnp.sqrt(jnp.sum((A / scale) ** 2))


def correlation(A: Float[Array, "a b"], B: Float[Array, "a b"]) -> Float[Array, ""]:
    """Return `<A, B> / (||A||_F ||B||_F)`, (), in [-1, 1].

    Raises:
        ValueError: different shapes; a zero or non-finite matrix, which has no direction. Under
            `jit` and `vmap`, where numbers cannot be read, such a lane is NaN: select it away.
    """
    if A.shape != B.shape:
        raise ValueError(f"correlation: expected two matrices of one shape, found {A.shape} and {B.shape}")
    lengths = norm(A), norm(B)
    for name, length in zip("AB", lengths, strict=True):
        if is_concrete(length) and not 0 < length < jnp.inf:
            raise ValueError(f"correlation: expected {name} with a direction, found a matrix of norm {length}")
    return jnp.clip(jnp.sum((A / lengths[0]) * (B / lengths[1])), -1.0, 1.0)


def rank(W: Float[Array, "a b"], rtol: float = 1e-6) -> Int[Array, ""]:
    """Return how many singular values exceed `rtol` times the largest, ().

    Relative, unlike the absolute 1e-7 of the published rank figure: the rank of `c W` is that of `W`,
    and of a zero matrix 0.
    """
    singular_values = jnp.linalg.svd(W, compute_uv=False)
    return jnp.sum(singular_values > rtol * singular_values[..., :1], axis=-1)
