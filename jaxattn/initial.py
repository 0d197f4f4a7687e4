"""Initial attention weights: pure functions of a random key and the dimension d."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import checks
from jaxattn.attention import Factored
from jaxattn.data import draws
from jaxattn.models import Joint

__all__ = ["Law", "factored", "factored_zero", "free", "free_zero", "several", "with_readout"]

# A law draws weights, or the parameters of another model, from a key and d.
Law = Callable[[PRNGKeyArray, int], Any]


def free(key: PRNGKeyArray, d: int) -> Float[Array, "d d"]:
    """Draw W from uniform(-1/sqrt d, 1/sqrt d), the published linear-layer initialization.

    Example:
        >>> initial.free(key, d=5).shape
        (5, 5)
    """
    return _uniform(key, d, d)


def factored(key: PRNGKeyArray, d: int, m: int | None = None, scale: float = 1.0) -> Factored:
    """Draw K and Q, (d, m), from scale * uniform(-1/sqrt d, 1/sqrt d), with one key each. Default: m = d.

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
    """Return `W = 0`, (d, d), which gives every token the same probability. The key is not used.

    Example:
        >>> float(jnp.abs(initial.free_zero(key, d=5)).max())
        0.0
    """
    del key
    draws.check_sizes(d=d)
    return jnp.zeros((d, d))


def factored_zero(key: PRNGKeyArray, d: int, scale: float = 0.1) -> Factored:
    """Return factors with `K Q^T = 0`: `Q = 0`, (d, d), and `K` a scaled standard normal matrix, (d, d).

    Source: trajectory figures of 2308.16898 (figure 1).

    Example:
        >>> bool((initial.factored_zero(key, d=5).W == 0).all())
        True
    """
    draws.check_sizes(d=d)
    (K,) = draws.normals(key[None], (d, d))
    return Factored(K=scale * K, Q=jnp.zeros((d, d)))


def several(key: PRNGKeyArray, d: int, count: int = 2, law: Law = free) -> tuple[Any, ...]:
    """Draw the weights of several heads from one law, with one key per head.

    Raises:
        ValueError: count < 1.

    Example:
        >>> len(initial.several(key, d=5, count=3))
        3
    """
    checks.count("count", count)
    keys = jax.random.split(key, count)
    return tuple(law(keys[h], d) for h in range(count))


def with_readout(key: PRNGKeyArray, d: int, law: Law = free, scale: float = 1.0) -> Joint:
    """Draw the parameters of `models.with_values`: the attention weights from a law, and v from scale * N(0, I / d).

    Raises:
        ValueError: a scale that is not positive and finite.

    Example:
        >>> initial.with_readout(key, d=5).readout.shape
        (5,)
    """
    checks.positive("scale", scale)
    weights_key, v_key = jax.random.split(key)
    return Joint(law(weights_key, d), scale * d**-0.5 * jax.random.normal(v_key, (d,)))


def _uniform(key: PRNGKeyArray, d: int, m: int) -> Float[Array, "d m"]:
    draws.check_sizes(d=d)
    return draws.uniform(key, d, m, bound=d**-0.5)
