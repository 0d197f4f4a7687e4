"""Causal attention over positions in the paper's form, with the tensor trick; used to test the identity only.

With rows stacked, `vec(A1 X A2^T) = (A1 kron A2) vec(X)` are the scores of a sequence: A1 has the embeddings of the
query positions, A2 those of the positions attended to, and X is `W^T` in this library's notation (withdrawn ICLR 2024
submission, section 1 and Definitions 3.1 to 3.3). The paper gives the diagonal matrix D(X), which divides exponentials
by their sums, a wrong size: there is one sum for each query position, here over the positions up to it.

The Kronecker matrix of n positions has n^2 d^2 entries per sequence, while the matrix form needs n d + n^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import losses

__all__ = ["Slope", "attention", "kronecker", "slope", "squared_slope", "stacked"]


class Slope(NamedTuple):
    """A risk, (), and its gradient with respect to x, (d^2,)."""

    value: Float[Array, ""]
    gradient: Float[Array, " dd"]


# Maps attention, (n,), the embeddings A2 of positions, (n, d), whether each is the next word, (n,), and the next word's
# embedding, (d,), to the loss and its derivative with respect to the attention.
_Read = Callable[[Float[Array, " n"], Float[Array, "n d"], Float[Array, " n"], Float[Array, " d"]], tuple[Array, Array]]


def stacked(W: Float[Array, "d d"]) -> Float[Array, " dd"]:
    """Return x, the columns of W one below the other, (d^2,): the rows of `X = W^T`.

    Example:
        >>> from jaxattn.language import tensor
        >>> tensor.stacked(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [1.0, 3.0, 2.0, 4.0]
    """
    return W.T.ravel()


def kronecker(A1: Float[Array, "n d"], A2: Float[Array, "k d"]) -> Float[Array, "nk dd"]:
    """Return `A1 kron A2`, (n k, d^2): row `i k + j` gives the score of position j for the query position i.

    Example:
        >>> from jaxattn.language import tensor
        >>> tensor.kronecker(jnp.ones((3, 2)), jnp.ones((4, 2))).shape
        (12, 4)
    """
    return jnp.kron(A1, A2)


def attention(x: Float[Array, " dd"], whole: Float[Array, "nn dd"]) -> Float[Array, "n n"]:
    """Return the causal attention `D(X)^-1 exp((A1 kron A2) x)`, (n, n): row i sees the positions up to i.

    Example:
        >>> from jaxattn.language import tensor
        >>> tensor.attention(jnp.zeros(4), tensor.kronecker(jnp.ones((3, 2)), jnp.ones((3, 2))))[1].tolist()
        [0.5, 0.5, 0.0]
    """
    n = round(len(whole) ** 0.5)
    rows = jnp.tri(n, dtype=x.dtype) * jnp.exp(whole @ x).reshape(n, n)
    # The diagonal of D(X): n sums, one per row.
    return rows / jnp.sum(rows, axis=1)[:, None]


def slope(
    x: Float[Array, " dd"],
    E: Float[Array, "V d"],
    words: Int[Array, "m n"],
    loss: losses.Loss = losses.cross_entropy,
) -> Slope:
    """Return `language.risk` with the candidates `language.prefix`, and its gradient, by explicit formulas.

    The weights x are `stacked`; the loss is one of the attention to the next word. A prefix that does not contain its
    next word, or contains no other word, is excluded, as in `language.of_text`.

    Example:
        >>> from jaxattn.language import tensor
        >>> found = tensor.slope(jnp.zeros(16), jnp.eye(4), jnp.array([[0, 1, 2, 3]]))
    """

    def read(p: Array, A2: Array, is_next: Array, target: Array) -> tuple[Array, Array]:
        del A2, target
        # A prefix that does not contain its next word is excluded; -log has no value there.
        score = jnp.where(jnp.max(is_next) > 0, jnp.sum(p * is_next), 1.0)
        value, of_score = jax.value_and_grad(loss)(score)
        return value, of_score * is_next

    return _mean(x, E, words, read)


def squared_slope(x: Float[Array, " dd"], E: Float[Array, "V d"], words: Int[Array, "m n"]) -> Slope:
    """Return `language.squared_risk` and its gradient as `slope` does `language.risk`.

    Example:
        >>> from jaxattn.language import tensor
        >>> found = tensor.squared_slope(jnp.zeros(16), jnp.eye(4), jnp.array([[0, 1, 2, 3]]))
    """

    def read(p: Array, A2: Array, is_next: Array, target: Array) -> tuple[Array, Array]:
        del is_next
        apart = p @ A2 - target
        return jnp.sum(apart**2) / 2, A2 @ apart

    return _mean(x, E, words, read)


def _mean(x: Array, E: Array, words: Array, read: _Read) -> Slope:
    """Return the mean over all prefixes that are not excluded; one Kronecker matrix is formed at a time."""

    def of_sequence(sequence: Array) -> tuple[Array, Array, Array]:
        prefix, following = sequence[:-1], sequence[1:]
        A = E[prefix]
        whole = kronecker(A, A)
        p = attention(x, whole)
        seen = jnp.tri(len(prefix), dtype=bool)
        is_next = seen & (prefix[None, :] == following[:, None])
        chooses = is_next.any(axis=1) & (seen & (prefix[None, :] != following[:, None])).any(axis=1)
        values, of_p = jax.vmap(read, in_axes=(0, None, 0, 0))(p, A, is_next.astype(p.dtype), E[following])
        # The Jacobian of a row's softmax is diag(p) - p p^T.
        of_scores = p * (of_p - jnp.sum(p * of_p, axis=1)[:, None])
        gradient = whole.T @ jnp.where(chooses[:, None], of_scores, 0.0).ravel()
        return jnp.sum(jnp.where(chooses, values, 0.0)), gradient, jnp.sum(chooses)

    values, gradients, number = jax.lax.map(of_sequence, words)
    total = jnp.maximum(jnp.sum(number), 1)
    return Slope(jnp.sum(values) / total, jnp.sum(gradients, axis=0) / total)
