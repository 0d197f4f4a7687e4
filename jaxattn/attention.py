"""Softmax attention of one layer with free, factored or spanned weights.

The logits are `X_i W z_i`, without the factor 1/sqrt(d), as in the papers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn.problem import Problem, check_one, is_concrete

__all__ = ["Factored", "Spanned", "Weights", "attended", "logits", "matrix", "probabilities"]


class Factored(NamedTuple):
    """Attention weights as a product, `W = K Q^T` with `K`, `Q` of shape (d, m)."""

    K: Float[Array, "*batch d m"]
    Q: Float[Array, "*batch d m"]

    @property
    def W(self) -> Float[Array, "*batch d d"]:
        """The product `K Q^T`, (d, d)."""
        return self.K @ jnp.swapaxes(self.Q, -1, -2)


class Spanned(NamedTuple):
    """Free attention weights in the span of the queries, `W = sum_i B_i z_i^T`: n d numbers instead of d^2.

    Descent on a free W stays in `W0 + span{x_it z_i^T}`. From `W0 = 0`, B therefore describes W for any d. Z are the
    queries of the problem.
    """

    B: Float[Array, "*batch n d"]
    Z: Float[Array, "*batch n d"]

    @property
    def W(self) -> Float[Array, "*batch d d"]:
        """The sum `B^T Z`, (d, d)."""
        return jnp.swapaxes(self.B, -1, -2) @ self.Z


# Attention weights: a free matrix W of shape (d, d), its two factors, or its coefficients in the span of the queries.
Weights = Array | np.ndarray | Factored | Spanned


def matrix(weights: Weights) -> Float[Array, "*batch d d"]:
    """Return the (d, d) matrix W of these weights.

    Example:
        >>> K = initial.factored(key, 5)
        >>> bool(jnp.allclose(attention.matrix(K), K.K @ K.Q.T))
        True
    """
    return weights.W if isinstance(weights, Factored | Spanned) else jnp.asarray(weights)


def inner(A: Weights, B: Weights) -> Float[Array, ""]:
    """Return the Frobenius inner product `<A, B>`, (), without forming the matrix of `Spanned` weights."""
    if not isinstance(A, Spanned):
        A, B = B, A
    if not isinstance(A, Spanned):
        return jnp.sum(matrix(A) * matrix(B))
    if isinstance(B, Spanned):
        return jnp.sum((A.B @ B.B.T) * (A.Z @ B.Z.T))
    return jnp.sum(A.B * (A.Z @ matrix(B).T))


def check_weights(weights: Any, problem: Problem) -> None:
    """Check shapes and precision of weights against a problem, also under `jit` and `vmap`.

    Raises:
        ValueError: not a Problem; W not (d, d), K and Q not (d, m) with one m, B and Z not (n, d), Z not the queries of
            the problem; mixed precisions.
    """
    check_one(problem)
    d = problem.d
    for name, leaf in _named(weights).items():
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ValueError(f"weights: expected an array or Factored(K, Q), found {type(leaf).__name__} as {name}")
        expected: tuple[Any, ...] = (d, "m")
        if not isinstance(weights, Factored):
            expected = (problem.n, d) if isinstance(weights, Spanned) else (d, d)
        if leaf.ndim != 2 or any(
            size != "m" and size != length for size, length in zip(expected, leaf.shape, strict=True)
        ):
            letters = ", ".join(map(str, expected))
            raise ValueError(f"{name}: expected shape ({letters}) for tokens of d = {d}, found {tuple(leaf.shape)}")
        if leaf.dtype != problem.X.dtype:
            raise ValueError(f"{name}: expected dtype {problem.X.dtype} as the tokens have, found {leaf.dtype}")
    if isinstance(weights, Factored) and weights.K.shape != weights.Q.shape:
        raise ValueError(
            f"K, Q: expected the same shape (d, m), found {tuple(weights.K.shape)} and {tuple(weights.Q.shape)}"
        )
    if isinstance(weights, Spanned) and is_concrete(weights.Z) and is_concrete(problem.Z):
        apart = int(np.sum(np.asarray(weights.Z) != np.asarray(problem.Z)))
        if apart:
            raise ValueError(f"Z: expected the problem's queries, found {apart} other entries")


def _named(weights: Any) -> dict[str, Any]:
    return weights._asdict() if isinstance(weights, Factored | Spanned) else {"W": weights}


def logits(weights: Weights, problem: Problem) -> Float[Array, "n T"]:
    """Return the attention logits `X_i W z_i`, (n, T); -inf for tokens that the input cannot see.

    Raises:
        ValueError: weights that do not fit the problem.

    Example:
        >>> attention.logits(start, problem).shape
        (3, 4)
    """
    check_weights(weights, problem)
    if isinstance(weights, Factored):
        keys = (problem.Z @ weights.Q) @ weights.K.T
    elif isinstance(weights, Spanned):
        keys = (problem.Z @ weights.Z.T) @ weights.B
    else:
        keys = problem.Z @ weights.T
    return masked(jnp.einsum("ntd,nd->nt", problem.X, keys), problem)


def masked(numbers: Float[Array, "n T *lanes"], problem: Problem) -> Float[Array, "n T *lanes"]:
    """Return one number per token, for example its logit or score, with -inf for tokens that attention cannot see."""
    return numbers if problem.present is None else jnp.where(problem.present, numbers, -jnp.inf)


def probabilities(weights: Weights, problem: Problem) -> Float[Array, "n T"]:
    """Return the attention probabilities `s_i = softmax(X_i W z_i)`, (n, T); 0 for tokens that the input cannot see.

    Example:
        >>> s = attention.probabilities(start, problem)
        >>> bool(jnp.allclose(s.sum(axis=1), 1.0))
        True
    """
    return jax.nn.softmax(logits(weights, problem), axis=-1)


def attended(probabilities: Float[Array, "n T"], problem: Problem) -> Float[Array, "n d"]:
    """Return the attention outputs `X_i^T s_i`, (n, d).

    Example:
        >>> attention.attended(attention.probabilities(start, problem), problem).shape  # X_i^T s_i of every input
        (3, 5)
    """
    return jnp.einsum("ntd,nt->nd", problem.X, probabilities)
