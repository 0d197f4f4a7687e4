"""Scores of attention to words: 1 for the next word and little for others, or as read by a fixed head."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn.language.choices import Choices, check
from jaxattn.problem import is_concrete

__all__ = ["Head", "close_scores", "dual_head", "head_scores"]

# Maps a random key and the embeddings to a prediction head with one direction per word.
Head = Callable[[PRNGKeyArray, Float[Array, "V d"]], Float[Array, "d V"]]


def close_scores(key: PRNGKeyArray, choices: Choices, delta: float) -> Choices:
    """Return the same choices of a text with scores 1 for the next word and uniform on [0, delta) for all other words.

    Raises:
        ValueError: delta outside [0, 1), where the next word would not have the largest score.

    Example:
        >>> scored = language.close_scores(key, text, delta=0.0)
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta: expected a number within [0, 1), found {delta}")
    check(choices)
    N, V = choices.last.shape[0], choices.E.shape[0]
    others = delta * jax.random.uniform(key, (N, V), choices.E.dtype)
    is_next = choices.next[:, None] == jnp.arange(V)[None, :]
    return choices._replace(scores=jnp.where(is_next, 1.0, others))


def dual_head(key: PRNGKeyArray, E: Float[Array, "V d"], delta: float = 0.0) -> Float[Array, "d V"]:
    """Return a head that reads 1 in a word's own direction, and a number in [0, delta) in any other word's direction.

    `e_t^T h_w` is 1 for t = w and otherwise uniform on [0, delta), drawn once for each pair of words. With delta = 0
    the head is the pseudoinverse of the embeddings, and all non-optimal tokens have equal scores.

    Raises:
        ValueError: delta outside [0, 1), or embeddings that are not linearly independent. Under `jit` and `vmap`, where
            numbers cannot be checked, only that there are more words than dimensions.

    Example:
        >>> H = language.dual_head(key, text.E)
        >>> bool(jnp.allclose(text.E @ H, jnp.eye(5)))
        True
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta: expected a number within [0, 1), found {delta}")
    if getattr(E, "ndim", 0) != 2:
        raise ValueError(f"E: expected embeddings (V, d), found {type(E).__name__}")
    V, d = E.shape
    if d < V:
        raise ValueError(f"E: expected at most as many words as dimensions, found V = {V} and d = {d}")
    if is_concrete(E) and (rank := int(np.linalg.matrix_rank(np.asarray(E)))) < V:
        raise ValueError(f"E: expected linearly independent embeddings, found rank {rank} of {V} words")
    read = jnp.where(jnp.eye(V, dtype=bool), 1.0, delta * jax.random.uniform(key, (V, V), E.dtype))
    return jnp.linalg.pinv(E) @ read


def head_scores(choices: Choices, H: Float[Array, "d V"]) -> Choices:
    """Return the same inputs with the scores that a fixed head reads, of one direction per word.

    The score of a token is `h_w^T e_t` with w the next word, and the optimal token has the largest score (Definition
    3.9 of the withdrawn ICLR 2024 submission, label 1). Scores are rounded to about the square root of the precision,
    so that scores that differ only by rounding are equal. An input has weight 1 if its next word stands at exactly one
    of several positions and has the largest score. Otherwise, as if several positions have it, no optimal token is
    unique (Assumption 3.10).

    Raises:
        ValueError: a head of another shape than (d, V).

    Example:
        >>> read = language.head_scores(text, language.dual_head(key, text.E))
        >>> bool(jnp.array_equal(read.scores, text.worth))
        True
    """
    check(choices)
    E = choices.E
    if H.shape != E.T.shape:
        raise ValueError(f"H: expected shape {E.T.shape}, a direction for each word, found {H.shape}")
    bits = round(-math.log2(float(jnp.finfo(E.dtype).eps)) / 2)
    scores = jnp.round((E @ H).T[choices.next] * 2.0**bits) / 2.0**bits
    times = jnp.ones_like(scores) if choices.counts is None else choices.counts
    is_next = choices.next[:, None] == jnp.arange(E.shape[0])[None, :]
    of_next, most = (
        jnp.max(jnp.where((times > 0) & chosen, scores, -jnp.inf), axis=1) for chosen in (is_next, ~is_next)
    )
    chooses = (jnp.sum(jnp.where(is_next, times, 0.0), axis=1) == 1) & (of_next > most) & jnp.isfinite(most)
    return choices._replace(weight=chooses.astype(E.dtype), scores=scores)
