"""Data laws: pure functions from a random key to one Problem.

A law is any such function; `functools.partial(data.sphere, n=6, T=8, d=10)` is one, and `vmap` over
keys makes a batch of problems. Each array is drawn from a key of its own, split from the given one.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import draws
from jaxattn.problem import Problem

Law = Callable[[PRNGKeyArray], Problem]


def sphere(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw tokens, queries and head direction uniformly from the unit sphere of R^d, labels +-1.

    The law of the local-convergence, rank and probability figures (2308.16898, section 3).

    Raises:
        ValueError: n < 1, T < 2 or d < 1.
    """
    _check_sizes(n=n, T=T, d=d)
    keys = jax.random.split(key, 4)
    X, Z, v = draws.normals(keys[jnp.array([0, 1, 3])], (n, T, d), (n, d), (d,))
    return Problem(X=_unit(X), Z=_unit(Z), Y=jax.random.rademacher(keys[2], (n,)).astype(float), v=_unit(v))


def three_tokens(key: PRNGKeyArray) -> Problem:
    """Draw two inputs of three tokens in the plane, the layout of the trajectory figure.

    Tokens are 0.3 times standard normal, moved by (-1, 0) in the first and (1, 0) in the second
    input; queries and head direction are unit vectors; labels are +1 (2308.16898, figure 1).
    """
    X, Z, v = _planar(key, T=3)
    X = 0.3 * X + jnp.array([[[-1.0, 0.0]], [[1.0, 0.0]]])
    return Problem(X=X, Z=Z, Y=jnp.ones(2), v=v)


def five_tokens(key: PRNGKeyArray) -> Problem:
    """Draw two inputs of five tokens in the plane, one of them set apart in each input.

    Tokens are 0.5 times standard normal; the first of each input is then put at (1, 0.5) and
    (1, -0.5), the others are moved by (-1, 0); the rest as in `three_tokens`.
    """
    X, Z, v = _planar(key, T=5)
    X = (0.5 * X + jnp.array([-1.0, 0.0])[None, None]).at[:, 0].set(jnp.array([[1.0, 0.5], [1.0, -0.5]]))
    return Problem(X=X, Z=Z, Y=jnp.ones(2), v=v)


def _planar(key: PRNGKeyArray, T: int) -> tuple[Float[Array, "2 T 2"], Float[Array, "2 2"], Float[Array, "2"]]:
    """Draw standard normal tokens of two inputs in the plane, their queries and the head direction."""
    X, Z, v = draws.normals(jax.random.split(key, 3), (2, T, 2), (2, 2), (2,))
    return X, _unit(Z), _unit(v)


def _unit(vectors: Float[Array, "... d"]) -> Float[Array, "... d"]:
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        smallest = 2 if name == "T" else 1
        if not isinstance(size, int) or size < smallest:
            raise ValueError(f"{name}: expected an integer of at least {smallest}, found {size!r}")
