"""Noise of training: minibatches of inputs, and dropout on the attention, drawn anew at every step from a key.

A law of noise is a pure function of a step's key and the sizes of a problem; `train(..., noise=..., key=...)` gives it
`jax.random.fold_in(key, k)` at step k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import checks
from jaxattn.descent.gradients import Reading

__all__ = ["Draw", "Noise", "dropout", "full_batch", "minibatches"]


class Draw(NamedTuple):
    """What is drawn for one step.

    Attributes:
        attention: what every probability is multiplied by before the head reads it, (n, T).
        inputs: what every input's share of the gradient is multiplied by, (n,).
    """

    attention: Float[Array, "n T"]
    inputs: Float[Array, " n"]


# From a step's key, n and T.
Noise = Callable[[PRNGKeyArray, int, int], Draw]


def full_batch(key: PRNGKeyArray, n: int, T: int) -> Draw:
    """No noise: every step takes the gradient of all inputs, and nothing is drawn.

    Example:
        >>> float(descent.full_batch(key, 3, 4).inputs.sum())
        3.0
    """
    del key
    return Draw(jnp.ones((n, T)), jnp.ones(n))


@lru_cache(maxsize=64)
def minibatches(size: int) -> Noise:
    """Return the noise of minibatches: each step takes the gradient of `size` inputs, drawn without replacement.

    Losses and probabilities that a run records are those of all inputs.

    Raises:
        ValueError: a size < 1, or, in training, more than the n inputs there are.

    Example:
        >>> run = descent.train(start, problem, noise=descent.minibatches(2), key=key, steps=10)
    """
    checks.count("size", size)
    return _Minibatches(int(size))


@dataclass(frozen=True)
class _Minibatches:
    size: int

    def __call__(self, key: PRNGKeyArray, n: int, T: int) -> Draw:
        if self.size > n:
            raise ValueError(f"size: expected a minibatch of at most the {n} inputs, found {self.size}")
        places = jax.random.permutation(key, n)
        return Draw(jnp.ones((n, T)), jnp.where(places < self.size, n / self.size, 0.0))


@lru_cache(maxsize=64)
def dropout(rate: float) -> Noise:
    """Return dropout on the attention: each probability is zero with this rate, else divided by 1 - rate.

    Raises:
        ValueError: a rate outside [0, 1).

    Example:
        >>> run = descent.train(start, problem, noise=descent.dropout(0.1), key=key, steps=10)
    """
    if isinstance(rate, bool) or not hasattr(rate, "__float__") or not 0 <= rate < 1:
        raise ValueError(f"rate: expected a number of at least 0 and below 1, found {rate!r}")
    return _Dropout(float(rate))


@dataclass(frozen=True)
class _Dropout:
    rate: float

    def __call__(self, key: PRNGKeyArray, n: int, T: int) -> Draw:
        kept = jax.random.bernoulli(key, 1 - self.rate, (n, T))
        return Draw(jnp.where(kept, 1 / (1 - self.rate), 0.0), jnp.ones(n))


def drawn(noise: Noise, key: PRNGKeyArray, step: Int[Array, ""], n: int, T: int, dtype: jnp.dtype) -> Draw:
    """Return the draw of one step, in the precision of the problem.

    Example:
        >>> from jaxattn.descent.noise import drawn
        >>> drawn(descent.dropout(0.5), key, 7, 3, 4, jnp.float32).attention.shape
        (3, 4)
    """
    draw = noise(jax.random.fold_in(key, step), n, T)
    return Draw(*(jnp.asarray(part, dtype) for part in draw))


def heard(read: Reading, noise: Noise, key: PRNGKeyArray) -> Reading:
    """Return how a head reads the attention of a problem through noise."""

    def noisy(step: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        n, T = probabilities.shape
        draw = drawn(noise, key, step, n, T, probabilities.dtype)
        predictions, worth = read(step, probabilities * draw.attention)
        # By the chain rule; a token of an input that is not in the batch is worth nothing.
        return predictions, worth * draw.attention * draw.inputs[:, None]

    return noisy
