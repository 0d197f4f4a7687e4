"""The data of the rates: one relevant token per input, among noise tokens that are nearly orthogonal to all others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxattn.data import draws
from jaxattn.problem import Problem


def near_orthogonal(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw inputs with one relevant token `Y_i mu` at a random place, and T - 1 noise tokens.

    The data model of 2402.05738, as recalled. The noise is uniform on the unit sphere: the cosine of two tokens is
    about 1 / sqrt(d), so for d much larger than n T all of them are nearly orthogonal. The query is the first token of
    its input, labels are +-1 at random, and the head v is mu, the first axis.

    Raises:
        ValueError: n < 1, T < 2 or d < 1.
    """
    draws.check_sizes(n=n, T=T, d=d)
    noise_key, Y_key, place_key = jax.random.split(key, 3)
    (noise,) = draws.normals(noise_key[None], (n, T, d))
    Y = jax.random.rademacher(Y_key, (n,)).astype(float)
    relevant = jnp.arange(T)[None, :] == jax.random.randint(place_key, (n, 1), 0, T)
    mu = jnp.zeros(d).at[0].set(1.0)
    X = jnp.where(relevant[:, :, None], Y[:, None, None] * mu[None, None, :], draws.unit(noise))
    return Problem(X=X, Z=X[:, 0], Y=Y, v=mu)
