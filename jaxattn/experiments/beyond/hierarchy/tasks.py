"""What the decoders are trained on: sequences, the tokens to predict, and the token that holds the answer."""

from __future__ import annotations

import codecs
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray


class Batch(NamedTuple):
    """Sequences of tokens 0..V-1, the token to predict at each position, and where up to it the answer stands.

    A source is -1 where no single position holds the answer.
    """

    sequences: Int[Array, "n T"]
    targets: Int[Array, "n T"]
    sources: Int[Array, "n T"]


@dataclass(frozen=True)
class Fixed:
    """The same sequences at every step; predictions count from position `since` on, which should see two tokens."""

    of: Callable[[PRNGKeyArray], Batch]
    since: int

    def __call__(self, key: PRNGKeyArray, step: Int[Array, ""] | int) -> Batch:
        """Return the batch of a step; that of step 0 is also measured."""
        del step
        return self.of(key)


@dataclass(frozen=True)
class Fresh(Fixed):
    """New sequences at every step."""

    def __call__(self, key: PRNGKeyArray, step: Int[Array, ""] | int) -> Batch:
        """Return the batch of a step; that of step 0 is measured, and not trained on again."""
        return self.of(jax.random.fold_in(key, step))


def previous(key: PRNGKeyArray, n: int, T: int, V: int) -> Batch:
    """Draw different tokens; predict at each position the token before it, the first at the first."""
    sequences = _different(key, n, T, V)
    sources = jnp.broadcast_to(jnp.maximum(jnp.arange(T) - 1, 0), (n, T))
    return Batch(sequences, _at(sequences, sources), sources)


def largest(key: PRNGKeyArray, n: int, T: int, V: int) -> Batch:
    """Draw different tokens; predict at each position the largest so far."""
    sequences = _different(key, n, T, V)
    targets = jax.lax.cummax(sequences, axis=1)
    sources = jnp.argmax(sequences[:, None, :] == targets[:, :, None], axis=2)
    return Batch(sequences, targets, sources)


def induction(key: PRNGKeyArray, n: int, T: int, V: int) -> Batch:
    """Draw different tokens, and at the last position one of them again; predict there the token that followed it."""
    of_tokens, of_places = jax.random.split(key)
    sequences = _different(of_tokens, n, T, V)
    places = jax.random.randint(of_places, (n,), 0, T - 2)
    sequences = sequences.at[:, -1].set(_at(sequences, places[:, None])[:, 0])
    sources = jnp.broadcast_to(places[:, None] + 1, (n, T))
    return Batch(sequences, _at(sequences, sources), sources)


def text(key: PRNGKeyArray, n: int, T: int, V: int) -> Batch:
    """Draw passages of the Zen of Python, which ships with every Python; predict the next letter.

    The V - 1 most frequent letters are tokens of their own, all others one token.
    """
    letters = _zen(V)
    starts = jax.random.randint(key, (n,), 0, letters.size - T)
    passages = jnp.asarray(letters)[starts[:, None] + jnp.arange(T + 1)[None]]
    return Batch(passages[:, :-1], passages[:, 1:], jnp.full((n, T), -1))


def letters(V: int) -> list[str]:
    """Return what each token of `text` stands for; the last one stands for all rarer letters."""
    return [*_frequent()[: V - 1], "other"]


@lru_cache(maxsize=4)
def _zen(V: int) -> Int[np.ndarray, " letters"]:
    ranks = {letter: rank for rank, letter in enumerate(_frequent())}
    return np.minimum([ranks[letter] for letter in _written()], V - 1)


def _frequent() -> list[str]:
    """Return the letters of the text, the most frequent first, equally frequent ones in the order of their codes."""
    kinds, counts = np.unique(list(_written()), return_counts=True)
    return kinds[np.lexsort((kinds, -counts))].tolist()


@lru_cache(maxsize=1)
def _written() -> str:
    # The module prints the text when it is imported, so its source is read.
    spec = importlib.util.find_spec("this")
    assert spec is not None
    written = codecs.decode(Path(str(spec.origin)).read_text().split('"""')[1], "rot13").lower()
    return " ".join(written.split())


def _different(key: PRNGKeyArray, n: int, T: int, V: int) -> Int[Array, "n T"]:
    if not 2 <= T <= V:
        raise ValueError(f"T: expected 2..V = {V} different tokens, found {T}")
    return jax.vmap(lambda one: jax.random.permutation(one, V)[:T])(jax.random.split(key, n))


def _at(sequences: Int[Array, "n T"], places: Int[Array, "n k"]) -> Int[Array, "n k"]:
    return jnp.take_along_axis(sequences, places, axis=1)
