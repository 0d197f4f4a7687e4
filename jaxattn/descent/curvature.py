"""The curvature of a function: the eigenvalue of largest absolute value of its Hessian, with an error bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import metrics

__all__ = ["Curvature", "largest"]

# The Krylov space is exhausted once the remainder is this small, relative to the longest product so far.
_EXHAUSTED = 1e-12


class Curvature(NamedTuple):
    """An approximate eigenvalue of a Hessian H.

    Its absolute value is at most that of the largest eigenvalue, and some eigenvalue is within `residual` of it.

    Attributes:
        value: the Rayleigh quotient `<u, H u>`, ().
        residual: `||H u - value u||`, ().
        direction: u, of length 1, with the shape of the argument.
    """

    value: Float[Array, ""]
    residual: Float[Array, ""]
    direction: Float[Array, "..."]


def largest(
    function: Callable[[Array], Array], at: Float[Array, "..."], key: PRNGKeyArray, iterations: int = 30
) -> Curvature:
    """Return the eigenvalue of largest absolute value of the Hessian of a function at a point.

    Uses the Lanczos method with full reorthogonalization from a random direction; only products with H are formed.
    Pure; works under `jit` and `vmap`. If the function is not finite, the result is not either.

    Args:
        function: from an array to a number, (), twice differentiable.
        at: the point.
        key: the random key of the initial direction.
        iterations: the number of products with H, at most the number of entries of `at`, plus one for the error bound.

    Raises:
        ValueError: iterations < 1.

    Example:
        >>> from jaxattn.descent import curvature
        >>> round(float(curvature.largest(lambda x: x @ x, jnp.ones(3), key).value), 6)
        2.0
    """
    if iterations < 1:
        raise ValueError(f"iterations: expected at least 1, found {iterations}")
    turns, slope = min(iterations, at.size), jax.grad(function)

    def product(u: Array) -> Array:
        return jax.jvp(slope, (at,), (u.reshape(at.shape),))[1].ravel()

    def turn(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        basis, alpha, beta, u, longest = state
        basis, w = basis.at[k].set(u), product(u)
        longest, along = jnp.maximum(longest, metrics.norm(w)), jnp.sum(u * w)
        for _ in range(2):
            w = w - (basis @ w) @ basis
        rest = metrics.norm(w)
        more = rest > _EXHAUSTED * longest
        # From here on all is zero and adds an eigenvalue 0, which is the largest only if H = 0.
        u = jnp.where(more, w / jnp.where(more, rest, 1.0), 0.0)
        return basis, alpha.at[k].set(along), beta.at[k].set(jnp.where(more, rest, 0.0)), u, longest

    start = jax.random.normal(key, (at.size,), at.dtype)
    start = start / metrics.norm(start)
    none = jnp.zeros(turns, at.dtype)
    state = jnp.zeros((turns, at.size), at.dtype), none, none, start, jnp.zeros((), at.dtype)
    basis, alpha, beta, _, _ = jax.lax.fori_loop(0, turns, turn, state)
    beside = jnp.diag(beta[:-1], 1)
    values, vectors = jnp.linalg.eigh(jnp.diag(alpha) + beside + beside.T)
    u = vectors[:, jnp.argmax(jnp.abs(values))] @ basis
    length = metrics.norm(u)
    u = jnp.where(length > 0.5, u / jnp.where(length > 0.5, length, 1.0), start)
    bent = product(u)
    value = jnp.sum(u * bent)
    return Curvature(value, metrics.norm(bent - value * u), u.reshape(at.shape))
