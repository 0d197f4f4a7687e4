"""One head whose keys and queries share a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, heads
from jaxattn.attention import Factored
from jaxattn.models.input_transforms import TransformedInputs, plain
from jaxattn.problem import Problem

__all__ = ["Tied", "tied"]


@dataclass(frozen=True)
class Tied:
    """A model with tied keys and queries, `W = K K^T`; the parameters are K, (d, m).

    W is positive semidefinite, and its trace is `||K||_F^2`. So `bias.rank(run, problems, ["trace", ...])` compares it
    with the solution of least trace among such matrices.

    Attributes:
        model: the keys and queries that K reads.
    """

    model: TransformedInputs = plain

    def logits(self, weights: Float[Array, "d m"], problem: Problem) -> Float[Array, "1 n T"]:
        """Return `(K^T k_it) . (K^T q_i)`."""
        return self.model.logits(Factored(weights, weights), problem)

    def predictions(
        self, readout: Any, probabilities: Float[Array, "1 n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions from the attention output."""
        return self.model.predictions(readout, probabilities, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem whose logits `X_i W z_i`, with W from `matrix`, are the model's."""
        return self.model.seen(problem)

    def matrix(self, weights: Any) -> Float[Array, "*batch d d"]:
        """Return `K K^T`."""
        return attention.matrix(Factored(jnp.asarray(weights), jnp.asarray(weights)))


def tied(model: TransformedInputs = plain) -> Tied:
    """Return the model with logits `x_it^T K K^T z_i`; its parameters are K, (d, m).

    Example:
        >>> run = descent.train(start[:, :2], problem, model=models.tied(), steps=10)
        >>> run.weights.shape
        (5, 2)
    """
    return Tied(model)
