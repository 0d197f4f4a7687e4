"""The selection problems of a text: the last word of each prefix is the query, the next word the token to select."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxattn import checks
from jaxattn.problem import as_array, is_concrete

__all__ = ["Candidates", "Choices", "compact", "followers", "of_text", "prefix", "vocabulary"]

# Maps sequences (m, n) and V to how often each word is a candidate of each prefix, (m, n - 1, V); None: once each.
Candidates = Callable[[Int[Array, "m n"], int], Float[Array, "m prefixes V"] | None]


class Choices(NamedTuple):
    """The selection problems of a text, N of them, with shared word embeddings. A pytree; `vmap` adds batch axes.

    The query of input i is the embedding of `last[i]`. It attends to candidate words t, `counts[i, t]` times each, with
    logits `e_t^T W e_last`.

    Attributes:
        E: embeddings of the words, (V, d).
        last: the last word of each prefix, (N,).
        next: the word after it, (N,).
        weight: of each input, (N,): 0 if it is excluded, more than 1 for several equal ones.
        counts: how often each word is a candidate, (N, V). Default: once each.
        scores: of attention to each word, (N, V). Default: 1 for the next word and 0 for the others.
    """

    E: Float[Array, "*batch V d"]
    last: Int[Array, "*batch N"]
    next: Int[Array, "*batch N"]
    weight: Float[Array, "*batch N"]
    counts: Float[Array, "*batch N V"] | None = None
    scores: Float[Array, "*batch N V"] | None = None

    @property
    def worth(self) -> Float[Array, "*batch N V"]:
        """The scores, (N, V), with the default written out."""
        return jax.nn.one_hot(self.next, self.E.shape[-2], dtype=self.E.dtype) if self.scores is None else self.scores

    @property
    def share(self) -> Float[Array, "*batch N"]:
        """The weight of each input as a fraction of the total; all 0 if all inputs are excluded."""
        total = jnp.sum(self.weight, axis=-1, keepdims=True)
        return self.weight / jnp.where(total > 0, total, 1.0)

    @property
    def others(self) -> Bool[Array, "*batch N V"]:
        """Which words are candidates other than the next word, for inputs that are not excluded."""
        is_next = jax.nn.one_hot(self.next, self.E.shape[-2], dtype=bool)
        others = ~is_next & (self.weight[..., None] > 0)
        return others if self.counts is None else others & (self.counts > 0)


def check(choices: Any, *, batch: bool = False) -> None:
    """Raise ValueError unless these are the choices of one text, or of a batch of texts with one leading axis."""
    if not isinstance(choices, Choices):
        raise ValueError(  # noqa: TRY004
            f"choices: expected those of a text, as language.of_text gives them, found {type(choices).__name__}"
        )
    if choices.E.ndim != 2 + batch:
        expected = "a batch of texts, E of shape (batch, V, d)" if batch else "one text, E of shape (V, d)"
        raise ValueError(f"choices: expected those of {expected}, found {choices.E.shape}")


def vocabulary(words: Int[Array, "m n"], V: int) -> None:
    """Return None: each word is a candidate once, as in next-token prediction.

    Example:
        >>> own = language.of_text(jnp.eye(4), jnp.array([[0, 1, 2, 3]]), candidates=language.vocabulary)
    """
    del words, V


def prefix(words: Int[Array, "m n"], V: int) -> Float[Array, "m prefixes V"]:
    """Return how often each word occurs in each prefix: attention to positions, (m, n - 1, V).

    Example:
        >>> own = language.of_text(jnp.eye(4), jnp.array([[0, 1, 0, 3]]), candidates=language.prefix)
    """
    seen = jax.nn.one_hot(words[:, :-1], V, dtype=float)
    return jnp.cumsum(seen, axis=1)


def of_text(E: Any, words: Any, candidates: Candidates = vocabulary) -> Choices:
    """Return the choices of a text: input `i (n - 1) + j` is the prefix of j + 1 words of sequence i.

    A prefix whose next word is not a candidate, or is the only one, has nothing to select: it has weight 0.

    Raises:
        ValueError: embeddings other than (V, d) with V >= 2, NaN or infinity; words that are not integers (m, n >= 2)
            within 0..V-1; candidates that are no function of words and V; no prefix with a selection.

    Example:
        >>> language.of_text(jnp.eye(4), jnp.array([[0, 1, 2, 3]])).next.tolist()
        [1, 2, 3]
    """
    E = as_array("E", E)
    if E.ndim != 2 or E.shape[0] < 2:
        raise ValueError(f"E: expected embeddings (V, d) of at least 2 words, found shape {E.shape}")
    checks.function("candidates", candidates, ("words", "V"))
    try:
        words = words if isinstance(words, jax.Array) else np.asarray(words)
    except ValueError as error:
        raise ValueError(f"words: expected sequences of equal length, found {error}") from error
    if words.ndim != 2 or words.shape[1] < 2 or not jnp.issubdtype(words.dtype, jnp.integer):
        raise ValueError(
            f"words: expected integers (m, n) with n of at least 2, found shape {words.shape} of {words.dtype}"
        )
    V = E.shape[0]
    check_words("words", words, V)
    words = jnp.asarray(words)
    last, following = words[:, :-1].ravel(), words[:, 1:].ravel()
    counts = candidates(words, V)
    if counts is None:
        return Choices(E, last, following, jnp.ones(last.shape, E.dtype))
    counts = counts.reshape(-1, V).astype(E.dtype)
    of_next = jnp.take_along_axis(counts, following[:, None], axis=1)[:, 0]
    chooses = (of_next > 0) & (jnp.sum(counts > 0, axis=1) > 1)
    if is_concrete(chooses) and not np.any(np.asarray(chooses)):
        raise ValueError(f"words: expected a prefix that its next word is a candidate of, found none of {last.size}")
    return Choices(E, last, following, chooses.astype(E.dtype), counts)


def check_words(name: str, words: Any, V: int) -> None:
    """Raise ValueError for words outside 0..V-1, unless they are traced."""
    if not is_concrete(words):
        return
    # In NumPy, since JAX would trace this if the caller is traced.
    numbers = np.asarray(words)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < V:
        raise ValueError(f"{name}: expected words within 0..V-1 = {V - 1}, found {numbers.min()}..{numbers.max()}")


def followers(choices: Choices) -> Float[Array, "V V"]:
    """Return how often each word follows each other word in a text, (V, V): row a counts the words after a.

    Raises:
        ValueError: choices of several texts; `vmap` this function for them.

    Example:
        >>> language.followers(text).shape
        (5, 5)
    """
    check(choices)
    V = choices.E.shape[0]
    return jnp.zeros((V, V), choices.E.dtype).at[choices.last, choices.next].add(choices.weight)


def compact(choices: Choices) -> Choices:
    """Return the same choices with duplicate inputs merged, and embeddings in coordinates of their span.

    Weights of equal inputs are added, and excluded inputs removed. Embeddings become (V, V) with the same Gram matrix,
    so risks and max-margin problems are unchanged except for the basis of W. It does not work under `jit`. Batch axes
    may lead: each lane is padded with inputs of weight 0 to the longest lane.

    Raises:
        ValueError: choices with scores, which may differ between equal inputs.

    Example:
        >>> short = language.compact(text)
        >>> bool(jnp.allclose(short.weight.sum(), text.weight.sum()))
        True
    """
    several = np.ndim(getattr(choices, "last", ())) > 1
    check(choices, batch=several)
    if choices.scores is not None:
        raise ValueError("compact: expected choices without scores of their own, found some")
    if several:
        lanes = [compact(jax.tree.map(itemgetter(k), choices)) for k in range(len(choices.last))]
        longest = max(lane.last.shape[-1] for lane in lanes)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(_filled(lane, longest) for lane in lanes))
    E, last, following, weight, counts, _ = jax.tree.map(np.asarray, choices)
    kept = weight > 0
    parts = [last[kept, None], following[kept, None], *([] if counts is None else [counts[kept]])]
    _, first, merged_into = np.unique(np.concatenate(parts, axis=1), axis=0, return_index=True, return_inverse=True)
    total = np.bincount(merged_into.ravel(), weights=weight[kept]).astype(weight.dtype)
    taken = np.flatnonzero(kept)[first]
    # The triangular factor of E^T; if there are fewer coordinates than words the rest is zero.
    coordinates = np.asarray(np.linalg.qr(E.T, mode="r")).T
    coordinates = np.pad(coordinates, [(0, 0), (0, len(E) - coordinates.shape[1])])
    merged: Any = coordinates, last[taken], following[taken], total, None if counts is None else counts[taken]
    return Choices(*merged)


def _filled(choices: Choices, length: int) -> Choices:
    missing = length - choices.last.shape[-1]

    def longer(leaf: Any, fill: float = 0.0) -> Any:
        return np.pad(leaf, [(0, missing), *[(0, 0)] * (leaf.ndim - 1)], constant_values=fill)

    # An input without weight still needs candidates to keep its softmax finite.
    counts = None if choices.counts is None else longer(choices.counts, 1.0)
    return Choices(choices.E, longer(choices.last), longer(choices.next), longer(choices.weight), counts)
