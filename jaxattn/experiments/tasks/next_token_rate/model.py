"""One layer of attention and a feed-forward layer, with slopes and losses that do not cancel however small they are.

The feed-forward layer W_ov, (V, d), scores the next words: `W_ov x` after the word x alone, `W_ov X^T s` after a
sentence with attention `s = softmax(X W_kq z)`, z its last word. Both losses are cross entropies. In what follows a
score is relative to that of the right next word y: the slope in scores w is then `sum_v p_v (w_v - w_y)` over v != y.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.experiments.tasks.next_token_rate.law import Sentences

# Below this the logarithm of log(1 + exp(a)) is a to double precision.
_SMALL = -40.0


def feed_forward_slope(W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, "V d"]:
    """Return the slope of the loss on single words, each followed by its successor."""
    E, right = sentences.text.E, _right(sentences)
    others = jnp.where(right, 0.0, jax.nn.softmax(E @ W_ov.T, axis=1))
    return (others - jnp.where(right, jnp.sum(others, axis=1, keepdims=True), 0.0)).T @ E


def log_feed_forward_loss(W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, ""]:
    """Return the logarithm of the mean loss on single words."""
    logits, right = sentences.text.E @ W_ov.T, _right(sentences)
    behind = logits - jnp.sum(jnp.where(right, logits, 0.0), axis=1, keepdims=True)
    a = jax.nn.logsumexp(jnp.where(right, -jnp.inf, behind), axis=1)
    each = jnp.where(a < _SMALL, a, jnp.log(jax.nn.softplus(jnp.maximum(a, _SMALL))))
    return jax.nn.logsumexp(each) - jnp.log(each.shape[0])


def attention_slope(W_kq: Float[Array, "d d"], W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, "d d"]:
    """Return the slope of the loss on sentences in W_kq.

    Words are taken relative to the one with most attention, whose own term is then 0.
    """
    text, s = sentences.text, _attention(W_kq, sentences)
    scores = _scores(W_ov, sentences)
    output = jnp.einsum("nt,ntv->nv", s, scores)
    of_logits = s * jnp.einsum("nv,ntv->nt", _wrong(output, sentences), scores - output[:, None])
    E, top = text.E, jnp.argmax(s, axis=1)
    moved = of_logits @ E - jnp.sum(of_logits, axis=1, keepdims=True) * E[top]
    return moved.T @ E[text.last]


def log_excess(W_kq: Float[Array, "d d"], W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, ""]:
    """Return the logarithm of the mean loss on sentences, less that with all attention on the best words."""
    best = _at_best(W_ov, sentences)
    rises = jnp.einsum("nt,ntv->nv", _attention(W_kq, sentences), _scores(W_ov, sentences) - best[:, None])
    each = jnp.log1p(jnp.sum(_wrong(best, sentences) * jnp.expm1(rises), axis=1))
    return jnp.log(jnp.mean(each))


def is_least(W_ov: Float[Array, "V d"], sentences: Sentences) -> Bool[Array, ""]:
    """Return whether the loss is least with all attention on the best words: attention to any other word raises it."""
    best = _at_best(W_ov, sentences)
    slopes = jnp.einsum("nv,ntv->nt", _wrong(best, sentences), _scores(W_ov, sentences) - best[:, None])
    return jnp.all((slopes > 0) | ~sentences.text.others)


def _right(sentences: Sentences) -> Bool[Array, "V V"]:
    """Return which word is the successor of which, (word, next word)."""
    return jax.nn.one_hot(sentences.successor, sentences.successor.shape[0], dtype=bool)


def _attention(W_kq: Float[Array, "d d"], sentences: Sentences) -> Float[Array, "N V"]:
    text = sentences.text
    logits = text.E[text.last] @ W_kq.T @ text.E.T
    return jax.nn.softmax(jnp.where(sentences.present, logits, -jnp.inf), axis=1)


def _scores(W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, "N V V"]:
    """Return the scores of all next words with all attention on one word, (sentence, attended word, next word)."""
    logits = sentences.text.E @ W_ov.T
    return logits[None] - logits[:, sentences.successor[sentences.text.next]].T[:, :, None]


def _at_best(W_ov: Float[Array, "V d"], sentences: Sentences) -> Float[Array, "N V"]:
    """Return the scores with all attention on the best word."""
    return jnp.take_along_axis(_scores(W_ov, sentences), sentences.text.next[:, None, None], axis=1)[:, 0]


def _wrong(scores: Float[Array, "N V"], sentences: Sentences) -> Float[Array, "N V"]:
    """Return the probabilities of the wrong next words, and 0 for the right one."""
    right = jax.nn.one_hot(sentences.successor[sentences.text.next], scores.shape[1], dtype=bool)
    return jnp.where(right, 0.0, jax.nn.softmax(scores, axis=1))
