"""Inputs with a signal token among noise, and some flipped labels (2409.17625), in coordinates of their span."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxattn import checks
from jaxattn.data import draws
from jaxattn.problem import Problem

# The weakly relevant tokens' share of the signal.
RHO = 0.1


def signal_tokens(
    key: PRNGKeyArray, n: int, T: int, d: int, least: float, most: float, noise: float = 0.2, blur: float = 0.0
) -> Problem:
    """Draw n inputs of T standard normal tokens in R^d, three of them with a signal.

    Half of the inputs have class 1, half class -1. The first token has the signal of its class added, the second and
    third have a tenth of the signals of their own class and of the other one. The two signals are orthogonal and have
    the same norm mu, log-uniform in `least..most`. In each class the first labels are flipped. The head is `v = (mu_1 -
    mu_2) / (sqrt 2 mu^2) + blur u`, with u a direction of norm 1 orthogonal to the signals, so that it also reads the
    noise. All inputs share one query, of norm 1.

    The tokens are given in n T + 3 orthonormal coordinates of a space that contains them, both signals and u first:
    training depends only on inner products. Those of the other noise follow from the triangular factor of a Wishart
    matrix (Bartlett 1933), whatever d is.

    Raises:
        ValueError: n < 2 or odd; T < 3; d < n T + 3; signals that are not positive, finite and in order; a share of
            noise outside 0..1; a blur that is negative or not finite.

    Example:
        >>> signal_tokens(key, n=4, T=3, d=2000, least=5.0, most=20.0).X.shape
        (4, 3, 15)
    """
    draws.check_sizes(n=n, T=T, d=d)
    checks.positive("least", least)
    checks.positive("most", most)
    checks.at_least_zero("blur", blur)
    if n % 2 or T < 3 or d < n * T + 3:
        raise ValueError(f"n, T, d: expected an even n, T of at least 3 and d of at least n T + 3, found {n}, {T}, {d}")
    if not (least <= most and 0 <= noise <= 1):
        raise ValueError(
            f"least, most, noise: expected least <= most and noise in 0..1, found {least}, {most}, {noise}"
        )
    keys, rows = jax.random.split(key, 4), n * T
    low, high = math.log(least), math.log(most)
    mu = jnp.exp(jax.random.uniform(keys[0], (), minval=low, maxval=high))
    along, below = draws.normals(keys[1:3], (rows, 3), (rows, rows))
    degrees = (d - 3.0 - jnp.arange(rows)) / 2
    lengths = jnp.sqrt(2 * jax.random.gamma(keys[3], degrees))
    X = jnp.concatenate([along, jnp.tril(below, -1) + jnp.diag(lengths)], axis=1).reshape(n, T, -1)
    first = (classes(n) > 0).astype(X.dtype)
    own = mu * jnp.stack([first, 1 - first], axis=1)
    added = jnp.stack([own, RHO * own, RHO * own[:, ::-1]], axis=1)
    axis = jnp.zeros(rows + 3)
    return Problem(
        X=X.at[:, :3, :2].add(added),
        Z=jnp.tile(axis.at[0].set(1.0)[None, :], (n, 1)),
        Y=jnp.where(flipped(n, noise), -classes(n), classes(n)),
        v=(axis.at[:2].set(jnp.array([1.0, -1.0])) / (2**0.5 * mu)).at[2].set(blur),
    )


def signal(v: Float[Array, "*seeds features"]) -> Float[Array, " *seeds"]:
    """Return mu, the norm of the signals, from the head."""
    return 1 / (2**0.5 * v[..., 0])


def classes(n: int) -> Float[Array, " n"]:
    """Return the true classes, 1 for the first half of the inputs, -1 for the others."""
    return jnp.where(jnp.arange(n) < n // 2, 1.0, -1.0)


def flipped(n: int, noise: float) -> Bool[Array, " n"]:
    """Return which labels are flipped: in each class half of `noise n` labels, rounded up before halving."""
    each = math.ceil(noise * n - 1e-9) // 2
    return jnp.arange(n) % (n // 2) < each
