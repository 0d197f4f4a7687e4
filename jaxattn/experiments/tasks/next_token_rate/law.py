"""Sentences whose next word follows from their best word, by an order of the words for each last word (2409.17335)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from jaxattn.data import draws
from jaxattn.language import Choices


class Sentences(NamedTuple):
    """Sentences of one text, and the word that follows each word if it is the best one, (V,).

    `text.next` is here the best word of each sentence, which attention should select.
    """

    text: Choices
    successor: Int[Array, "*batch V"]

    @property
    def present(self) -> Bool[Array, "*batch N V"]:
        """Which words each sentence consists of."""
        return self.text.others | jax.nn.one_hot(self.text.next, self.text.E.shape[-2], dtype=bool)


def ordered(key: PRNGKeyArray, V: int, asking: int, inputs: int, T: int, cosine: float) -> Sentences:
    """Draw sentences of T different words, and for each of `asking` last words an order of all words.

    Each last word ends `inputs` sentences. The best word of a sentence is the first one in the order of its last word,
    which is itself a word of the sentence. The successors are a random permutation of the V words. Embeddings are unit
    vectors in R^(V+1) with this cosine between any two.

    Raises:
        ValueError: a size below 1, asking above V, T outside 2..V, a cosine outside [0, 1).
    """
    draws.check_sizes(V=V, asking=asking, inputs=inputs, T=T)
    for name, found, least in (("asking", asking, 1), ("T", T, 2)):
        if not least <= found <= V:
            raise ValueError(f"{name}: expected {least}..V = {V}, found {found}")
    if not 0 <= cosine < 1:
        raise ValueError(f"cosine: expected a number in [0, 1), found {cosine}")
    own, common = jnp.sqrt(1 - cosine) * jnp.eye(V), jnp.full((V, 1), cosine**0.5)
    last_key, successor_key, order_key, word_key = jax.random.split(key, 4)
    last = jnp.repeat(jax.random.permutation(last_key, V)[:asking], inputs)
    orders = jax.vmap(lambda one: jax.random.permutation(one, V))(jax.random.split(order_key, asking))
    # The last word comes first in the order of the draw; T - 1 others follow.
    drawn = jax.vmap(lambda one: jax.random.uniform(one, (V,)))(jax.random.split(word_key, asking * inputs))
    drawn = jnp.where(jnp.arange(V)[None] == last[:, None], -1.0, drawn)
    present = jnp.argsort(jnp.argsort(drawn, axis=1), axis=1) < T
    best = jnp.argmin(jnp.where(present, jnp.repeat(orders, inputs, axis=0), V), axis=1)
    E = jnp.concatenate([own, common], axis=1)
    text = Choices(E, last, best, jnp.ones(asking * inputs), present.astype(E.dtype))
    return Sentences(text, jax.random.permutation(successor_key, V))
