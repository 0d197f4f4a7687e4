"""Starts and data for the flow on K and Q: unbalanced and diagonal starts, and data that keep weights diagonal."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from jaxattn import checks, initial
from jaxattn.attention import Factored
from jaxattn.data import draws
from jaxattn.problem import Problem

# Dimensions in which an input has at most about a thousand images.
_MOST = 11


def unbalanced(key: PRNGKeyArray, d: int, ratio: float = 16.0) -> Factored:
    """Draw K and Q as `initial.factored` does, (d, d), and let `||K|| / ||Q||` grow by a ratio; K Q^T is unchanged.

    Raises:
        ValueError: a ratio that is not positive and finite.
    """
    root = checks.positive("ratio", ratio) ** 0.5
    drawn = initial.factored(key, d)
    return Factored(K=root * drawn.K, Q=drawn.Q / root)


def on_axes(key: PRNGKeyArray, d: int) -> Factored:
    """Start at W = 0 with `diagonal` K as a matrix, and Q = 0, (d, d): aligned with `mirrored` data."""
    K, Q = diagonal(key, d)
    return Factored(K=jnp.diag(K[:, 0]), Q=jnp.diag(Q[:, 0]))


def diagonal(key: PRNGKeyArray, d: int) -> Factored:
    """Start at W = 0: the diagonal of K is uniform in (0.5, 1.5), that of Q zero, (d, 1) each.

    The entries of W are zero at the start, so none has to change its sign.
    """
    draws.check_sizes(d=d)
    K = 1 + draws.uniform(key, d, 1, bound=0.5)
    return Factored(K=K, Q=jnp.zeros_like(K))


def mirrored(key: PRNGKeyArray, n: int, T: int, d: int) -> Problem:
    """Draw n inputs, and the mirror images of each in all axes but the last: n 2^(d - 1) inputs in total.

    An image has the signs of some coordinates of its tokens and its query flipped. If W is diagonal, images have the
    logits of their input, and the total gradient is diagonal. So diagonal K and Q stay diagonal, and the axes are
    singular vectors of the weights and of the data. The last coordinate is read by the head, `v = e_d`, and is zero in
    every query. Other coordinates are those of unit vectors of R^(d - 1), drawn uniformly; labels +-1.

    Raises:
        ValueError: n < 1, T < 2, or a d outside 2..11.

    Example:
        >>> mirrored(key, n=2, T=3, d=5).n
        32
    """
    draws.check_sizes(n=n, T=T, d=d)
    if not 2 <= d <= _MOST:
        raise ValueError(f"d: expected an integer of at least 2 and, for 2^(d - 1) images, at most {_MOST}, found {d}")
    keys = jax.random.split(key, 4)
    X, Z, scores = draws.normals(keys[:3], (n, T, d - 1), (n, d - 1), (n, T))
    Y = jax.random.rademacher(keys[3], (n,)).astype(float)
    signs = jnp.array(list(itertools.product((1, -1), repeat=d - 1)), X.dtype)
    images = signs[:, None, None, :] * draws.unit(X)[None]
    queries = signs[:, None, :] * draws.unit(Z)[None, :, :]
    read = jnp.broadcast_to(scores[..., None], (*images.shape[:-1], 1))
    tokens = jnp.concatenate([images, read], axis=-1).reshape(-1, T, d)
    asked = jnp.concatenate([queries, jnp.zeros((*queries.shape[:-1], 1))], axis=-1).reshape(-1, d)
    return Problem(X=tokens, Z=asked, Y=jnp.tile(Y, len(signs)), v=jnp.zeros(d).at[-1].set(1.0))
