"""Models of one head over keys and queries derived from the tokens: unchanged, normalized, or with a temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, checks, heads
from jaxattn.checks import Number
from jaxattn.problem import Problem

__all__ = ["TransformedInputs", "layer_normalized", "normalized", "plain", "temperature"]


def _same(problem: Problem) -> Problem:
    return problem


@dataclass(frozen=True)
class TransformedInputs:
    """One head whose attention uses keys and queries derived from the problem's tokens and queries.

    Its weights are those of `attention`: W, (d, d), Factored(K, Q), (d, m) each, or Spanned. The logits are `k_it^T W
    q_i`, so W obeys a max-margin problem over the keys k and queries q.

    Attributes:
        for_attention: maps a problem to one whose tokens X are the keys and whose Z are the queries.
        for_head: maps a problem to one whose tokens X the head reads.
    """

    for_attention: Callable[[Problem], Problem] = _same
    for_head: Callable[[Problem], Problem] = _same

    def logits(self, weights: attention.Weights, problem: Problem) -> Float[Array, "1 n T"]:
        """Return `k_it^T W q_i`."""
        return attention.logits(weights, self.for_attention(problem))[None]

    def predictions(
        self, readout: Any, probabilities: Float[Array, "1 n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions from the attention output."""
        return of_outputs(attention.attended(probabilities[0], self.for_head(problem)), readout, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem whose logits `X_i W z_i`, with W from `matrix`, are the model's."""
        return self.for_attention(problem)

    def matrix(self, weights: attention.Weights) -> Float[Array, "*batch d d"]:
        """Return W."""
        return attention.matrix(weights)


def of_outputs(outputs: Float[Array, "n d"], readout: Any, problem: Problem, head: heads.Head) -> Float[Array, " n"]:
    """Return the head's predictions from attention outputs, with the trained readout or the problem's v."""
    return heads.of_each(head, outputs, problem.v if readout is None else readout)


# The model of the papers: logits `X_i W z_i`.
plain = TransformedInputs()


@dataclass(frozen=True)
class _Normalized:
    def __call__(self, problem: Problem) -> Problem:
        return replaced(problem, X=_unit(problem.X), Z=_unit(problem.Z))


def _unit(x: Float[Array, "*axes d"]) -> Float[Array, "*axes d"]:
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    return x / jnp.where(length > 0, length, 1)


def replaced(problem: Problem, **arrays: Any) -> Problem:
    """Return a problem with some of its arrays replaced."""
    return Problem(**problem.arrays | arrays)


def normalized() -> TransformedInputs:
    """Return the model whose attention uses tokens and queries scaled to length 1; the head reads the original tokens.

    Example:
        >>> run = descent.train(start, problem, model=models.normalized(), steps=10)
    """
    return TransformedInputs(_Normalized())


@dataclass(frozen=True)
class _Tempered:
    tau: Number

    def __call__(self, problem: Problem) -> Problem:
        return replaced(problem, Z=problem.Z / jnp.asarray(self.tau, problem.Z.dtype))


@checks.remembered
def temperature(tau: Number) -> TransformedInputs:
    """Return the model with logits `X_i W z_i / tau`, for example tau = sqrt(d).

    Raises:
        ValueError: tau is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.temperature(5**0.5), steps=10)
    """
    return TransformedInputs(_Tempered(checks.positive("tau", tau)))


@dataclass(frozen=True)
class _Centred:
    def __call__(self, problem: Problem) -> Problem:
        return replaced(problem, X=_standard(problem.X), Z=_standard(problem.Z))


def _standard(x: Float[Array, "*axes d"]) -> Float[Array, "*axes d"]:
    """Return vectors with mean 0 and variance 1 of their entries; 0 for one of equal entries."""
    return x.shape[-1] ** 0.5 * _unit(x - x.mean(axis=-1, keepdims=True))


def layer_normalized() -> TransformedInputs:
    """Return the model with LayerNorm before it: attention and head use tokens and queries of mean 0 and variance 1.

    There is neither a gain nor an offset. Keys and queries are orthogonal to the vector of ones, so W acts on d - 1
    coordinates.

    Example:
        >>> run = descent.train(start, problem, model=models.layer_normalized(), steps=10)
    """
    return TransformedInputs(_Centred(), _Centred())
