"""One head over keys and queries made of the tokens: as given, normalized, or at a temperature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, checks, heads
from jaxattn.problem import Problem

__all__ = ["Seeing", "normalized", "plain", "temperature"]


def _same(problem: Problem) -> Problem:
    return problem


@dataclass(frozen=True)
class Seeing:
    """One head whose attention sees keys and queries that are made of the problem's tokens and queries.

    Its weights are those of `attention`: W, (d, d), K and Q, (d, m), or Spanned. The logits are
    `k_it^T W q_i`, so W obeys a max-margin problem over the keys k and queries q.

    Attributes:
        see: from a problem to the same with keys as its tokens X and queries as its Z.
        read: from a problem to the one whose tokens the head reads.
    """

    see: Callable[[Problem], Problem] = _same
    read: Callable[[Problem], Problem] = _same

    def logits(self, weights: attention.Weights, problem: Problem) -> Float[Array, "1 n T"]:
        """Return `k_it^T W q_i`."""
        return attention.logits(weights, self.see(problem))[None]

    def predictions(
        self, readout: Any, probabilities: Float[Array, "1 n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return what the head makes of the attention output."""
        return of_outputs(attention.attended(probabilities[0], self.read(problem)), readout, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem of which `matrix` gives the logits `X_i W z_i`."""
        return self.see(problem)

    def matrix(self, weights: attention.Weights) -> Float[Array, "*batch d d"]:
        """Return W."""
        return attention.matrix(weights)


def of_outputs(outputs: Float[Array, "n d"], readout: Any, problem: Problem, head: heads.Head) -> Float[Array, " n"]:
    """Return what the head makes of every attention output, by the trained readout or by the problem's v."""
    return jax.vmap(head, in_axes=(0, None))(outputs, problem.v if readout is None else readout)


# The model of the papers: logits `X_i W z_i`.
plain = Seeing()


@dataclass(frozen=True)
class _Normalized:
    def __call__(self, problem: Problem) -> Problem:
        return replaced(problem, X=_unit(problem.X), Z=_unit(problem.Z))


def _unit(x: Float[Array, "*axes d"]) -> Float[Array, "*axes d"]:
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    return x / jnp.where(length > 0, length, 1)


def replaced(problem: Problem, **arrays: Any) -> Problem:
    """Return a problem with other arrays in place of some of its own."""
    return Problem(**problem.arrays | arrays)


def normalized() -> Seeing:
    """Return the model whose attention sees tokens and queries divided by their lengths; the head reads them as given.

    Example:
        >>> run = descent.train(start, problem, model=models.normalized(), steps=10)
    """
    return Seeing(_Normalized())


@dataclass(frozen=True)
class _Tempered:
    tau: float

    def __call__(self, problem: Problem) -> Problem:
        return replaced(problem, Z=problem.Z / jnp.asarray(self.tau, problem.Z.dtype))


def temperature(tau: float) -> Seeing:
    """Return the model with logits `X_i W z_i / tau`, such as tau = sqrt(d).

    Raises:
        ValueError: tau is not positive and finite.

    Example:
        >>> run = descent.train(start, problem, model=models.temperature(5**0.5), steps=10)
    """
    return Seeing(_Tempered(checks.positive("tau", tau)))
