"""Two more tasks: the sentences of a synthetic language, and patches of handwritten digits with a decoder for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn.experiments.beyond.digits import images
from jaxattn.experiments.beyond.hierarchy.attending import attended
from jaxattn.experiments.beyond.hierarchy.decoder import Decoder, Parameters
from jaxattn.experiments.beyond.hierarchy.tasks import Batch
from jaxattn.language import Markov

# How many images there are of each digit.
IMAGES = 6


def language(key: PRNGKeyArray, n: int, T: int, V: int, entropy: float, order: int) -> Batch:
    """Draw a language, `language.Markov`, and sentences of it; predict at each position the next word."""
    of_language, of_sentences = jax.random.split(key)
    law = Markov(V, entropy, order)
    words = law.sample(of_sentences, law.table(of_language), n, T + 1)
    return Batch(words[:, :-1], words[:, 1:], jnp.full((n, T), -1))


def digits(key: PRNGKeyArray, n: int) -> Batch:
    """Draw images, each four patches and a blank one; predict the digit at the blank, which itself says nothing."""
    drawn = jax.random.randint(key, (n,), 0, 10 * IMAGES)
    patches = drawn[:, None] * images.T + jnp.arange(images.T)[None]
    blank = jnp.full((n, 1), _table().shape[0] - 1)
    shape = (n, images.T + 1)
    targets = jnp.broadcast_to(drawn[:, None] // IMAGES, shape)
    return Batch(jnp.concatenate([patches, blank], axis=1), targets, jnp.full(shape, -1))


@lru_cache(maxsize=1)
def _table() -> Float[np.ndarray, "patches pixels"]:
    patches = images.tokens()[:, :IMAGES].reshape(-1, images.D)
    return np.concatenate([patches, np.zeros((1, images.D))])


class Patches(Decoder):
    """A decoder whose tokens are patches of digits, embedded by a linear map of their pixels; it reads out ten digits.

    Raises:
        ValueError: a vocabulary other than all patches and the blank one.
    """

    def __post_init__(self) -> None:
        if self.vocabulary != len(_table()):
            raise ValueError(f"vocabulary: expected all {len(_table())} patches, found {self.vocabulary}")

    def initial(self, key: PRNGKeyArray) -> Parameters:
        """Draw parameters: a random map of the pixels, random positions and readout, small K and Q."""
        of_pixels, of_positions, of_readout, *of_layers = jax.random.split(key, 3 + self.layers)
        pixels = jax.random.normal(of_pixels, (images.D, self.d)) / jnp.sqrt(self.d)
        positions = jax.random.normal(of_positions, (self.length, self.d)) / jnp.sqrt(self.d)
        readout = jax.random.normal(of_readout, (self.d, 10)) / jnp.sqrt(self.d)
        return Parameters(pixels, positions, tuple(map(self._layer, of_layers)), readout)

    def logits(
        self, parameters: Parameters, sequences: Int[Array, "n T"], attend: Callable[..., Array] = attended
    ) -> tuple[Float[Array, "n T 10"], Float[Array, "layers n T d"]]:
        """Return the logits of the digits at every position, and what the keys and queries of each layer read."""
        return super().logits(parameters._replace(tokens=_table() @ parameters.tokens), sequences, attend)
