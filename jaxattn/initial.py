"""Laws of the initial attention weights: pure functions of a random key and the dimension d."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import checks
from jaxattn.attention import Factored, Weights
from jaxattn.data import draws

__all__ = ["Law", "factored", "factored_zero", "free", "free_zero"]

Law = Callable[[PRNGKeyArray, int], Weights]


def free(key: PRNGKeyArray, d: int) -> Float[Array, "d d"]:
    """Draw W from uniform(-1/sqrt d, 1/sqrt d), the published linear-layer initialization.

    Example:
        >>> initial.free(key, d=5).shape
        (5, 5)
    """
    return _uniform(key, d, d)


def factored(key: PRNGKeyArray, d: int, m: int | None = None, scale: float = 1.0) -> Factored:
    """Draw K and Q, (d, m), from scale * uniform(-1/sqrt d, 1/sqrt d), each with its own key; m = d if None.

    Raises:
        ValueError: m < 1, or a scale that is not positive and finite.

    Example:
        >>> initial.factored(key, d=5, m=2).K.shape
        (5, 2)
    """
    checks.positive("scale", scale)
    m = d if m is None else m
    if m < 1:
        raise ValueError(f"m: expected a width of at least 1, found {m}")
    K_key, Q_key = jax.random.split(key)
    return Factored(K=scale * _uniform(K_key, d, m), Q=scale * _uniform(Q_key, d, m))


def free_zero(key: PRNGKeyArray, d: int) -> Float[Array, "d d"]:
    """Start at `W = 0`, every token equally likely; draws nothing.

    Example:
        >>> float(jnp.abs(initial.free_zero(key, d=5)).max())
        0.0
    """
    del key
    draws.check_sizes(d=d)
    return jnp.zeros((d, d))


def factored_zero(key: PRNGKeyArray, d: int, scale: float = 0.1) -> Factored:
    """Start at `K Q^T = 0` with `Q = 0` and `K` a scaled standard normal, (d, d).

    The start of the trajectory figures (2308.16898, figure 1).

    Example:
        >>> bool((initial.factored_zero(key, d=5).W == 0).all())
        True
    """
    draws.check_sizes(d=d)
    (K,) = draws.normals(key[None], (d, d))
    return Factored(K=scale * K, Q=jnp.zeros((d, d)))


def _uniform(key: PRNGKeyArray, d: int, m: int) -> Float[Array, "d m"]:
    draws.check_sizes(d=d)
    return draws.uniform(key, d, m, bound=d**-0.5)
