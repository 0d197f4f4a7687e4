"""Texts that the tests of jaxattn.language share: one shape, which compiles once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from jaxattn import data, language, svm
from jaxattn.language import Choices
from tests.instances import stacked

m, n, d, V = 3, 5, 6, 4
N = m * (n - 1)
CANDIDATES = {"vocabulary": language.vocabulary, "prefix": language.prefix}
KEYS = jax.random.split(jax.random.key(11), 8)


@cache
def _law(candidates: str, d: int) -> Callable[[PRNGKeyArray], Choices]:
    return jax.jit(partial(data.language, m=m, n=n, d=d, V=V, entropy=1.0, candidates=CANDIDATES[candidates]))


@cache
def drawn(candidates: str = "vocabulary", seed: int = 0, d: int = d) -> Choices:
    """One text of the shared shape; conflicts are likely."""
    return _law(candidates, d)(KEYS[seed])


@cache
def batch_of(candidates: str = "vocabulary", d: int = d) -> Choices:
    """Three of them."""
    return stacked([drawn(candidates, seed, d) for seed in range(3)])


def of_words(words, E=None, candidates: str = "vocabulary") -> Choices:
    """A text given word by word, in embeddings of full rank unless others are given."""
    E = np.random.default_rng(0).normal(size=(V, d)) if E is None else E
    return language.of_text(E, np.asarray(words), CANDIDATES[candidates])


def separable() -> Choices:
    """A text of the shared shape in which a word is always followed by the same one."""
    return of_words([[0, 1, 2, 3, 0], [2, 3, 0, 1, 2], [1, 2, 3, 0, 1]])


def conflicting() -> Choices:
    """One in which word 1 is followed by 2 and by 3."""
    return of_words([[0, 1, 2, 3, 0], [0, 1, 3, 0, 1], [1, 2, 3, 0, 1]])


def weighted(choices: Choices) -> Choices:
    """The same text with inputs that count differently."""
    return choices._replace(weight=choices.weight * (1 + jnp.arange(N)))


def matrix(seed: int = 0, d: int = d) -> jax.Array:
    """Weights to look at."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=(d, d)))


def positions(choices: Choices, i: int) -> np.ndarray:
    """The candidate words of an input, one by one, as often as each stands there."""
    counts = np.ones(V, int) if choices.counts is None else np.asarray(choices.counts[i], int)
    return np.repeat(np.arange(V), counts)


def others(choices: Choices, i: int) -> list[int]:
    """The candidate words of an input other than its next word, in order; none if it is excluded."""
    return sorted(set(positions(choices, i).tolist()) - {int(choices.next[i])}) if choices.weight[i] > 0 else []


def single(tree):
    """The same in 32 bits, whole numbers too."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float32 if leaf.dtype == np.float64 else np.int32), tree)


def solved(*posed: svm.Constraints) -> svm.Solution:
    """Solve max-margin problems of texts, hard or soft, in one program for all: it compiles once."""
    rng = np.random.default_rng(6)
    # With all of its rows, so that none is left out as one that counts in no lane.
    filling = svm.soft(svm.Constraints(*(jnp.asarray(rng.normal(size=shape)) for shape in ((N, V, d), (N, d)))), 1.0)
    given = [*posed, filling]
    return svm.solve_batch(stacked([_full(one) for one in given]), chunk=8)


def _full(rows: svm.Constraints) -> svm.Constraints:
    """The same rows in the shared shape, every field written out: others are not present, coordinates are zero."""
    inputs, width = N - len(rows.queries), d - rows.queries.shape[1]
    penalty = jnp.full((len(rows.queries), V), jnp.inf) if rows.penalty is None else rows.penalty
    present = jnp.ones(penalty.shape, bool) if rows.present is None else rows.present
    of_input = [(0, inputs), (0, 0)]
    return svm.Constraints(
        jnp.pad(rows.differences, [*of_input, (0, width)]),
        jnp.pad(rows.queries, [(0, inputs), (0, width)]),
        jnp.ones((N, V)),
        jnp.zeros((N, V), bool),
        jnp.pad(present, of_input),
        jnp.pad(penalty, of_input, constant_values=1.0),
    )
