"""A synthetic language: a Markov law of words with a given entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

__all__ = ["Markov"]

# Halvings of the interval of log temperatures, and its ends; and the largest number of contexts of a table.
_HALVINGS, _COLD, _HOT = 60, -20.0, 30.0
_MOST = 2**16


@dataclass(frozen=True)
class Markov:
    """A language in which the next word depends on the last `order` words only, with the same entropy in each context.

    In a context the words have probabilities `softmax(b g)`, with g standard normal and b for the required entropy. The
    first `order` words of a sequence are uniform.

    Attributes:
        V: the number of words.
        entropy: the entropy of the next word in nats, from 0 (it is certain) to log V (all words are equally likely).
        order: the number of words that it depends on.

    Raises:
        ValueError: V < 2, an entropy out of range, order < 1, or more than 65536 contexts.
    """

    V: int
    entropy: float
    order: int = 1

    def __post_init__(self) -> None:
        for name, least in (("V", 2), ("order", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: expected at least {least}, found {getattr(self, name)}")
        if not 0 <= self.entropy <= math.log(self.V):
            raise ValueError(f"entropy: expected 0..log V = {math.log(self.V):.4g} nats, found {self.entropy}")
        if self.contexts > _MOST:
            raise ValueError(f"order: expected at most {_MOST} contexts V^order, found {self.V}^{self.order}")

    @property
    def contexts(self) -> int:
        """The number of contexts."""
        return self.V**self.order

    def table(self, key: PRNGKeyArray) -> Float[Array, "contexts V"]:
        """Draw the log probability of each word in each context, (contexts, V).

        The words of a context are the digits of its number in base V, the last word being the lowest digit.
        """
        g = jax.random.normal(key, (self.contexts * self.V,)).reshape(self.contexts, self.V)
        return jax.vmap(self._of_entropy)(g)

    def sample(self, key: PRNGKeyArray, table: Float[Array, "contexts V"], m: int, n: int) -> Int[Array, "m n"]:
        """Draw m sequences of n words of a language.

        Raises:
            ValueError: m < 1, or n <= order, for which no word depends on the law.
        """
        if m < 1 or n <= self.order:
            raise ValueError(f"m, n: expected m >= 1 and n > order = {self.order}, found {m} and {n}")
        first_key, key = jax.random.split(key)
        first = jax.random.randint(first_key, (m * self.order,), 0, self.V).reshape(m, self.order)
        digits = self.V ** jnp.arange(self.order - 1, -1, -1)

        def draw(context: Int[Array, " m"], key: PRNGKeyArray) -> tuple[Int[Array, " m"], Int[Array, " m"]]:
            word = jax.random.categorical(key, table[context], axis=-1)
            return (context * self.V + word) % self.contexts, word

        _, words = jax.lax.scan(draw, jnp.sum(first * digits[None, :], axis=1), jax.random.split(key, n - self.order))
        return jnp.concatenate([first, words.T], axis=1)

    def _of_entropy(self, g: Float[Array, " V"]) -> Float[Array, " V"]:
        """Return the log probabilities, by bisection, since the entropy falls as b grows."""
        # A large b multiplies rounding errors, also those of g computed twice, so the largest number is made 0 exactly.
        top = jnp.argmax(g)
        g = jnp.where(jnp.arange(self.V) == top, 0.0, g - g[top])

        def halve(_: Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = (ends[0] + ends[1]) / 2
            flat = _entropy(jax.nn.log_softmax(jnp.exp(middle) * g)) > self.entropy
            return jnp.where(flat, middle, ends[0]), jnp.where(flat, ends[1], middle)

        low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.array(_COLD, g.dtype), jnp.array(_HOT, g.dtype)))
        return jax.nn.log_softmax(jnp.exp((low + high) / 2) * g)


def _entropy(log_p: Float[Array, " V"]) -> Float[Array, ""]:
    return -jnp.sum(jnp.where(log_p > -700, jnp.exp(log_p) * log_p, 0.0))
