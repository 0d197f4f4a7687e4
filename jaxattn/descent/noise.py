"""Training noise, drawn at each step from a key: minibatches, dropout on the attention, and Gumbel samples.

A noise law is a pure function of a step's key and the sizes n and T. `train(..., noise=..., key=...)` passes it
`jax.random.fold_in(key, k)` at step k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxattn import checks
from jaxattn.checks import Number
from jaxattn.descent.gradients import Reading, Rule, Slope
from jaxattn.losses import Loss
from jaxattn.parallel import batch
from jaxattn.problem import Problem

__all__ = ["Draw", "Noise", "Sample", "dropout", "full_batch", "gumbel", "minibatches"]

# The generator of noise keys. Those of others, such as "rbg", draw other numbers under `vmap` than for one seed.
NOISE_GENERATOR = "threefry2x32"


class Draw(NamedTuple):
    """The noise of one step.

    Attributes:
        attention: factors of the attention probabilities before the head reads them, (n, T).
        inputs: factors of the inputs' contributions to the gradient, (n,).
    """

    attention: Float[Array, "n T"]
    inputs: Float[Array, " n"]


class Sample(NamedTuple):
    """The noise of a step in which the head reads one token of each input, the one with the largest noisy logit.

    The gradient passes straight through this choice, as if the head had read `softmax((logits + noise) / tau)`.

    Attributes:
        noise: the noise added to the logits, (n, T).
        tau: the temperature of the softmax that the gradient passes through, ().
    """

    noise: Float[Array, "n T"]
    tau: Float[Array, ""]


# A law maps a step's key, n and T to the noise of the step.
Noise = Callable[[PRNGKeyArray, int, int], Draw | Sample]


def full_batch(key: PRNGKeyArray, n: int, T: int) -> Draw:
    """Draw no noise: each step uses the gradient of all inputs.

    Example:
        >>> float(descent.full_batch(key, 3, 4).inputs.sum())
        3.0
    """
    del key
    return Draw(jnp.ones((n, T)), jnp.ones(n))


@checks.remembered
def minibatches(size: int) -> Noise:
    """Return the noise of minibatches: each step uses the gradient of `size` inputs, drawn without replacement.

    The losses and probabilities recorded in a run are those of all inputs.

    Raises:
        ValueError: a size < 1, or, in training, larger than n.

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


@checks.remembered
def dropout(rate: Number) -> Noise:
    """Return dropout on the attention: each probability is set to 0 at this rate, and else divided by 1 - rate.

    Raises:
        ValueError: a rate outside [0, 1).

    Example:
        >>> run = descent.train(start, problem, noise=descent.dropout(0.1), key=key, steps=10)
    """
    return _Dropout(checks.number("rate", rate, "a number of at least 0 and below 1", lambda rate: 0 <= rate < 1))


@dataclass(frozen=True)
class _Dropout:
    rate: Number

    def __call__(self, key: PRNGKeyArray, n: int, T: int) -> Draw:
        kept = jax.random.bernoulli(key, 1 - self.rate, (n, T))
        return Draw(jnp.where(kept, 1 / (1 - self.rate), 0.0), jnp.ones(n))


@checks.remembered
def gumbel(tau: Number) -> Noise:
    """Return straight-through Gumbel samples: at each step the head reads one token drawn from the attention.

    The token with the largest logit plus standard Gumbel noise is a sample from the softmax. The losses recorded in a
    run are those of the samples, and its probabilities are those of the attention without noise.

    Args:
        tau: the temperature of the softmax that the gradient passes through (Jang et al., arXiv 1611.01144).

    Raises:
        ValueError: tau is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, noise=descent.gumbel(1.0), key=key, steps=10)
    """
    return _Gumbel(checks.positive("tau", tau))


@dataclass(frozen=True)
class _Gumbel:
    tau: Number

    def __call__(self, key: PRNGKeyArray, n: int, T: int) -> Sample:
        return Sample(jax.random.gumbel(key, (n, T)), jnp.asarray(self.tau))


def check_keys(noise: Noise, keys: Any, shape: tuple[int, ...], is_needed: bool, is_of_use: bool) -> None:
    """Raise ValueError unless the keys are those that the noise needs, or that the optimizer needs or can use."""
    is_given = keys is not None
    if noise is full_batch and not (is_given or is_needed):
        return
    if noise is full_batch and not is_of_use:
        raise ValueError("noise: expected a law such as descent.dropout(0.1) for the key, found full_batch")
    if not batch.is_key(keys) or keys.shape != shape:
        found = f"shape {keys.shape} of {keys.dtype}" if hasattr(keys, "dtype") else repr(keys)
        wanted = f"keys of shape {shape}" if shape else "one"
        raise ValueError(
            f"key: expected {wanted} for the noise of training or of its optimizer, as jax.random.key(0) gives them, "
            f"found {found}"
        )
    if (own := str(jax.random.key_impl(keys))) != NOISE_GENERATOR:
        raise ValueError(
            f"key: expected one of the generator {NOISE_GENERATOR!r}, which draws the same in a batch as for one seed, "
            f"found one of {own!r}; jax.random.key(0, impl={NOISE_GENERATOR!r}) makes one"
        )


def drawn(noise: Noise, key: PRNGKeyArray | None, step: Int[Array, ""], problem: Problem) -> Draw | Sample | None:
    """Return the noise of one step, in the problem's precision; None without a key, which means no noise."""
    if key is None:
        return None
    draw = noise(jax.random.fold_in(key, step), problem.n, problem.T)
    if not isinstance(draw, Draw | Sample):
        kind = type(draw).__name__
        raise ValueError(f"noise: expected a law that returns a descent.Draw or descent.Sample, found {kind}")  # noqa: TRY004
    return type(draw)(*(jnp.asarray(part, problem.X.dtype) for part in draw))


def through(draw: Draw | Sample | None, rule: Rule) -> Rule:
    """Return the rule that forms the gradient through the noise of one step."""

    def noisy(step: Int[Array, ""], logits: Array, Y: Array, read: Reading, loss: Loss) -> Slope:
        if isinstance(draw, Draw):
            return rule(step, logits, Y, _heard(read, draw), loss)
        assert draw is not None
        choice = chosen(draw, logits)
        slope = rule(step, (logits + draw.noise) / draw.tau, Y, lambda step, _: read(step, choice), loss)
        probabilities = jax.nn.softmax(logits, axis=1)
        return slope._replace(probabilities=probabilities, coefficients=slope.coefficients / draw.tau)

    return rule if draw is None else noisy


def _heard(read: Reading, draw: Draw) -> Reading:
    """Return how a head reads the attention of a problem through noise."""

    def noisy(step: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        predictions, worth = read(step, probabilities * draw.attention)
        # By the chain rule. Tokens of inputs outside the minibatch contribute nothing.
        return predictions, worth * draw.attention * draw.inputs[:, None]

    return noisy


def chosen(sample: Sample, logits: Float[Array, "n T"]) -> Float[Array, "n T"]:
    """Return 1 at the tokens that the head reads and 0 elsewhere, (n, T)."""
    return jax.nn.one_hot(jnp.argmax(logits + sample.noise, axis=1), logits.shape[1], dtype=logits.dtype)
