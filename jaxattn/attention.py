"""Softmax attention of one layer, with free or factored weights.

Logits are `X_i W z_i`, without the factor 1/sqrt(d), as in the papers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn.problem import Problem


class Factored(NamedTuple):
    """Attention weights as a product, `W = K Q^T` with `K`, `Q` of shape (d, m)."""

    K: Float[Array, "*batch d m"]
    Q: Float[Array, "*batch d m"]

    @property
    def W(self) -> Float[Array, "*batch d d"]:
        """The product `K Q^T`, (d, d)."""
        return self.K @ jnp.swapaxes(self.Q, -1, -2)


# Attention weights: a free matrix W of shape (d, d), or its two factors.
Weights = Array | np.ndarray | Factored


def matrix(weights: Weights) -> Float[Array, "*batch d d"]:
    """Return the (d, d) matrix that `weights` stand for."""
    return weights.W if isinstance(weights, Factored) else jnp.asarray(weights)


def check_weights(weights: Any, problem: Problem) -> None:
    """Hold weights against a problem: shapes and precision (read also under `jit` and `vmap`).

    Raises:
        ValueError: W other than (d, d), K and Q other than (d, m) with one m, mixed precisions.
    """
    d = problem.d
    for name, leaf in _named(weights).items():
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ValueError(f"weights: expected an array or Factored(K, Q), found {type(leaf).__name__} as {name}")
        if leaf.ndim != 2 or leaf.shape[0] != d or (name == "W" and leaf.shape[1] != d):
            expected = f"({d}, {d})" if name == "W" else f"({d}, m)"
            raise ValueError(f"{name}: expected shape {expected} for tokens of d = {d}, found {tuple(leaf.shape)}")
        if leaf.dtype != problem.X.dtype:
            raise ValueError(f"{name}: expected dtype {problem.X.dtype} as the tokens have, found {leaf.dtype}")
    if isinstance(weights, Factored) and weights.K.shape != weights.Q.shape:
        raise ValueError(
            f"K, Q: expected the same shape (d, m), found {tuple(weights.K.shape)} and {tuple(weights.Q.shape)}"
        )


def _named(weights: Any) -> dict[str, Any]:
    return weights._asdict() if isinstance(weights, Factored) else {"W": weights}


def logits(weights: Weights, problem: Problem) -> Float[Array, "n T"]:
    """Return the attention logits `X_i W z_i` of every input, (n, T).

    Raises:
        ValueError: weights that do not fit the problem.
    """
    check_weights(weights, problem)
    if isinstance(weights, Factored):
        keys = (problem.Z @ weights.Q) @ weights.K.T
    else:
        keys = problem.Z @ weights.T
    return jnp.einsum("ntd,nd->nt", problem.X, keys)


def probabilities(weights: Weights, problem: Problem) -> Float[Array, "n T"]:
    """Return the attention probabilities `s_i = softmax(X_i W z_i)`, (n, T)."""
    return jax.nn.softmax(logits(weights, problem), axis=-1)


def attended(probabilities: Float[Array, "n T"], problem: Problem) -> Float[Array, "n d"]:
    """Return the attention output `X_i^T s_i` of every input, (n, d)."""
    return jnp.einsum("ntd,nt->nd", problem.X, probabilities)
