"""A first stage that trains attention on texts from given starting weights, and the laws of these weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from jaxattn import checks, language, metrics
from jaxattn.parallel import batch
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.texts import TextTraining, trained

# From a random key and a text to coefficients of pairs of words, as `language.weights` takes them.
Start = Callable[[PRNGKeyArray, language.Choices], Float[Array, "V V"]]

_DIMS = {"pairs_initial": ("asking", "word"), "weights_key": ("key_word",)}


@dataclass(frozen=True)
class Drawn:
    """Starts of fixed norm in a random direction: independent normal coefficients for every pair with an asking word.

    Attributes:
        radius: Frobenius norm of W; 0 is the start at W = 0.

    Raises:
        ValueError: a radius that is negative or infinite.
    """

    radius: float

    def __post_init__(self) -> None:
        if not 0 <= self.radius < math.inf:
            raise ValueError(f"radius: expected a finite number of at least 0, found {self.radius!r}")

    def __call__(self, key: PRNGKeyArray, text: language.Choices) -> Float[Array, "V V"]:
        """Draw the coefficients of one start."""
        V = text.E.shape[0]
        asks = jax.ops.segment_sum(text.weight, text.last, num_segments=V) > 0
        pairs = jnp.where(asks[:, None], jax.random.normal(key, (V, V), text.E.dtype), 0.0)
        return self.radius * pairs / metrics.norm(language.weights(pairs, text).W)


@dataclass(frozen=True)
class Toward:
    """The start `W = c e_word e_asking^T` of a given norm: one word is far ahead when another one asks.

    Attributes:
        asking: the word that asks.
        word: the word that is ahead.
        radius: Frobenius norm of W.
    """

    asking: int
    word: int
    radius: float

    def __call__(self, key: PRNGKeyArray, text: language.Choices) -> Float[Array, "V V"]:
        """Return the coefficients of the start; nothing is random."""
        del key
        V = text.E.shape[0]
        pairs = jnp.zeros((V, V), text.E.dtype).at[self.asking, self.word].set(1.0)
        return self.radius * pairs / metrics.norm(language.weights(pairs, text).W)


@dataclass(frozen=True)
class Normal:
    """Starts whose W has independent normal entries, projected on the embeddings' span, which is all the logits use.

    Attributes:
        scale: standard deviation of an entry, and of a logit at the start, for unit embeddings; 0 is the start W = 0.
        starts: number of starts per text; seeds s with equal `s // starts` share a text.

    Raises:
        ValueError: a scale that is negative or infinite, or no start.
    """

    scale: float
    starts: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.scale < math.inf:
            raise ValueError(f"scale: expected a finite number of at least 0, found {self.scale!r}")
        checks.count("starts", self.starts)

    def __call__(self, key: PRNGKeyArray, text: language.Choices) -> Float[Array, "V V"]:
        """Draw W, and return the coefficients of its projection on the span."""
        d = text.E.shape[1]
        inverse = jnp.linalg.pinv(text.E)
        return self.scale * (inverse.T @ jax.random.normal(key, (d, d), text.E.dtype) @ inverse).T


@dataclass(frozen=True, kw_only=True)
class StartedTraining(TextTraining):
    """A `TextTraining` from drawn weights, each with its own key; the weights are recorded.

    Attributes:
        initial: law of the start, given a text; if it has `starts`, each text is trained from that many.
    """

    initial: Start

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name] if name in _DIMS else super().dims(name)

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        _, weights_key = keys(seed, root)
        data_key, _ = keys(seed // self._starts, root)
        text = from_words(self.law)(data_key)
        start = self._started(weights_key, text)
        own = {"weights_key": weights_key, "pairs_initial": start}
        return trained(text, data_key, language.train(text, start, **self.descent)) | own

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the texts and starts of some seeds, and train on them."""
        _, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        data_keys, _ = batch.over_seeds(keys, seeds // self._starts, shared=(root,))
        texts = batch.over_seeds(from_words(self.law), data_keys)
        starts = batch.over_seeds(self._started, weights_keys, texts)
        own = {"weights_key": weights_keys, "pairs_initial": starts}
        return trained(texts, data_keys, language.train_batch(asking(texts), jnp.asarray(starts), **self.descent)) | own

    @property
    def _starts(self) -> int:
        """The number of seeds that share a text."""
        return getattr(self.initial, "starts", 1)

    def _started(self, words: UInt32[Array, " words"], text: language.Choices) -> Float[Array, "V V"]:
        return self.initial(jax.random.wrap_key_data(words), text)


def asking(texts: language.Choices) -> language.Choices:
    """Return a batch of texts without the inputs of weight 0, except for padding to the longest text."""
    weight = np.asarray(texts.weight)
    longest = max(1, int((weight > 0).sum(axis=1).max()))
    places = np.argsort(weight == 0, axis=1, kind="stable")[:, :longest]

    def taken(leaf: Any) -> np.ndarray:
        return np.take_along_axis(np.asarray(leaf), places.reshape(*places.shape, *[1] * (np.ndim(leaf) - 2)), axis=1)

    named = {name: taken(leaf) for name, leaf in texts._asdict().items() if name != "E" and leaf is not None}
    return texts._replace(**named)
