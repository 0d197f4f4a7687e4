"""Texts whose token-priority graphs have one cycle of a given length, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn.data import draws
from jaxattn.language import Choices

# From a random key and V to embeddings of V words.
Embeddings = Callable[[PRNGKeyArray, int], Float[Array, "V d"]]
# Tokens of an input that are not drawn: its next word, another word of the cycle, and the last word.
_GIVEN = 3


def one_hot(key: PRNGKeyArray, V: int) -> Float[Array, "V V"]:
    """Return one-hot embeddings; nothing is random."""
    del key
    return jnp.eye(V)


def spherical(key: PRNGKeyArray, V: int, d: int) -> Float[Array, "V d"]:
    """Draw embeddings uniformly on the unit sphere of R^d.

    Raises:
        ValueError: d < V, for which embeddings cannot be linearly independent.
    """
    if d < V:
        raise ValueError(f"d: expected at least V = {V}, for embeddings to be linearly independent, found {d}")
    return draws.unit(draws.normals(key[None], (V, d))[0])


def planted(
    key: PRNGKeyArray, V: int, asking: int, cycle: int, inputs: int, T: int, embeddings: Embeddings = one_hot
) -> Choices:
    """Draw a text with `asking` different last words, each with its own priority order and one cycle in it.

    For each last word k the words have a random order of priority. `cycle` neighbours share one priority; k is one of
    them, or comes after them. Word i of the cycle is the next word of an input that contains word i + 1. The next words
    of further inputs are drawn from those with the priority of k or higher. Every input contains its next word, k as
    its last word, and words drawn from those whose priority is not above that of the next word. An input of a single
    repeated word has weight 0.

    Args:
        key: for everything random.
        V: words.
        asking: number of different last words.
        cycle: words in a cycle; 1 for graphs without any.
        inputs: number per last word, including those of the cycle.
        T: tokens per input.
        embeddings: of the words.

    Raises:
        ValueError: V < 3, asking outside 1..V, a cycle outside 1..V-1, fewer inputs than words in the cycle, T < 4.
    """
    draws.check_sizes(V=V, asking=asking, cycle=cycle, inputs=inputs, T=T)
    for name, found, least, most in (("asking", asking, 1, V), ("cycle", cycle, 1, V - 1)):
        if not least <= found <= most:
            raise ValueError(f"{name}: expected {least}..{most} of V = {V} words, found {found}")
    for name, found, least in (("inputs", inputs, cycle), ("T", T, _GIVEN + 1)):
        if found < least:
            raise ValueError(f"{name}: expected at least {least}, found {found}")
    word_key, graph_key, embedding_key = jax.random.split(key, 3)
    words = jax.random.permutation(word_key, V)[:asking]
    parts = [_inputs(one, words[k], V, cycle, inputs, T) for k, one in enumerate(jax.random.split(graph_key, asking))]
    following = jnp.concatenate([part[0] for part in parts])
    counts = jnp.concatenate([part[1] for part in parts])
    E = embeddings(embedding_key, V)
    chooses = jnp.sum(counts > 0, axis=1) > 1
    last = jnp.repeat(words, inputs)
    return Choices(E, last, following, chooses.astype(E.dtype), counts.astype(E.dtype))


def _inputs(key: PRNGKeyArray, k: Any, V: int, cycle: int, inputs: int, T: int) -> tuple[Int[Array, " N"], Array]:
    """Return the next words, and the counts of all words, in the inputs with one last word."""
    keys = jax.random.split(key, 5)
    start = jax.random.randint(keys[0], (), 0, V - cycle + 1)
    place = jax.random.randint(keys[1], (), start, V)
    order = jax.random.permutation(keys[2], V)
    # Word k swaps places with the word at its intended position.
    order = jnp.where(order == k, order[place], order).at[place].set(k)
    in_cycle = place < start + cycle
    priority = jnp.arange(V)
    priority = jnp.where((priority >= start) & (priority < start + cycle), start, priority)
    behind = jnp.where(in_cycle, start + cycle, place + 1)
    labels = jnp.concatenate([start + jnp.arange(cycle), jax.random.randint(keys[3], (inputs - cycle,), 0, behind)])
    successors = jnp.concatenate([start + (jnp.arange(cycle) + 1) % cycle, labels[cycle:]])
    least = priority[labels]
    share = jax.random.uniform(keys[4], (len(labels), T - _GIVEN))
    others = least[:, None] + jnp.floor(share * (V - least[:, None])).astype(int)
    places = jnp.concatenate([labels[:, None], successors[:, None], jnp.full((len(labels), 1), place), others], axis=1)
    counts = jnp.sum(jax.nn.one_hot(order[places], V), axis=1)
    return order[labels], counts
