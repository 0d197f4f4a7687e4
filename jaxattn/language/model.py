"""Causal attention as a classifier of the next word: logits, probabilities and risks."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import losses
from jaxattn.attention import Factored, Spanned, Weights, matrix
from jaxattn.language.choices import Choices, check

__all__ = ["counted", "linear", "logits", "margins", "risk", "softmax", "squared_risk", "table"]

# Maps logits, (N, V), to the attention to each word, (N, V).
Attention = Callable[[Float[Array, "N V"], Choices], Float[Array, "N V"]]


def table(weights: Weights, choices: Choices) -> Float[Array, "V V"]:
    """Return the logit `e_t^T W e_a` of each word t for each query word a, (V, V): row a, column t.

    Raises:
        ValueError: choices other than those of one text, or weights other than (d, d).

    Example:
        >>> language.table(jnp.zeros((6, 6)), text).shape
        (5, 5)
    """
    check(choices)
    if not hasattr(weights, "dtype") and not isinstance(weights, Factored | Spanned):
        raise ValueError(
            f"weights: expected W, Factored(K, Q), or those that language.weights makes of a run's pairs, found "
            f"{type(weights).__name__}"
        )
    W, (_, d) = matrix(weights), choices.E.shape
    if W.shape != (d, d):
        raise ValueError(f"W: expected shape ({d}, {d}) for embeddings of d = {d}, found {tuple(W.shape)}")
    return choices.E @ W.T @ choices.E.T


def logits(weights: Weights, choices: Choices) -> Float[Array, "N V"]:
    """Return the logits of all words, candidates or not, for each prefix, (N, V).

    Errors are those of `table`.

    Example:
        >>> language.logits(jnp.zeros((6, 6)), text).shape[1]
        5
    """
    return table(weights, choices)[choices.last]


def softmax(logits: Float[Array, "N V"], choices: Choices) -> Float[Array, "N V"]:
    """Return softmax attention, (N, V), where each occurrence of a word counts separately.

    Example:
        >>> risk = language.risk(jnp.zeros((6, 6)), text, attention=language.softmax)
    """
    return jax.nn.softmax(counted(logits, choices), axis=-1)


def linear(logits: Float[Array, "N V"], choices: Choices) -> Float[Array, "N V"]:
    """Return linear attention, (N, V): the logits themselves, divided by the number of candidates.

    Example:
        >>> risk = language.risk(jnp.zeros((6, 6)), text, attention=language.linear, loss=losses.logistic)
    """
    if choices.counts is None:
        return logits / logits.shape[-1]
    return logits * choices.counts / jnp.sum(choices.counts, axis=-1, keepdims=True)


def counted(logits: Float[Array, "N V"], choices: Choices) -> Float[Array, "N V"]:
    """Return logits plus the logarithm of the words' counts, (N, V); -inf for words that are not candidates.

    Example:
        >>> language.counted(language.logits(jnp.zeros((6, 6)), text), text).shape[1]
        5
    """
    return logits if choices.counts is None else logits + jnp.log(choices.counts)


def margins(weights: Weights, choices: Choices) -> Float[Array, "N V"]:
    """Return the next word's logit minus that of each other candidate, (N, V); inf elsewhere.

    Errors are those of `table`.

    Example:
        >>> bool(jnp.isfinite(language.margins(jnp.zeros((6, 6)), text)).any())
        True
    """
    of_all = logits(weights, choices)
    of_next = jnp.take_along_axis(of_all, choices.next[:, None], axis=1)
    return jnp.where(choices.others, of_next - of_all, jnp.inf)


def risk(
    weights: Weights,
    choices: Choices,
    *,
    loss: losses.Loss = losses.cross_entropy,
    attention: Attention = softmax,
) -> Float[Array, ""]:
    """Return the mean of `loss(sum_t p_it gamma_it)` over the prefixes, (): p the attention, gamma the scores.

    With default scores the sum is the probability of the next word, and the default loss that of next-token prediction.
    Errors are those of `table`.

    Example:
        >>> float(language.risk(jnp.zeros((6, 6)), text))  # cross entropy, of five words alike
        1.609...
    """
    attended = attention(logits(weights, choices), choices)
    # An excluded input may attend only to words of score 0, where a loss like -log has no slope.
    scores = jnp.where(choices.weight > 0, jnp.sum(attended * choices.worth, axis=-1), 1.0)
    return jnp.sum(choices.share * jax.vmap(loss)(scores))


def squared_risk(weights: Weights, choices: Choices, *, attention: Attention = softmax) -> Float[Array, ""]:
    """Return the mean of `||sum_t p_it e_t - e_next||^2 / 2` over the prefixes, (): attention as regression.

    Errors are those of `table`.

    Example:
        >>> float(language.squared_risk(jnp.zeros((6, 6)), text)) > 0
        True
    """
    attended = attention(logits(weights, choices), choices)
    apart = attended @ choices.E - choices.E[choices.next]
    return jnp.sum(choices.share * jnp.sum(apart**2, axis=-1) / 2)
