"""Models with a trained value vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import heads
from jaxattn.models.input_transforms import TransformedInputs, plain
from jaxattn.models.several import Heads
from jaxattn.problem import Problem

__all__ = ["Valued", "with_values"]


@dataclass(frozen=True)
class Valued:
    """A model with the head's parameters v trained beside the attention; the parameters are a `Joint`.

    Attributes:
        model: the attention model.
    """

    model: TransformedInputs | Heads = plain

    def logits(self, weights: Any, problem: Problem) -> Float[Array, "heads n T"]:
        """Return the logits of the attention model."""
        return self.model.logits(weights, problem)

    def predictions(
        self, readout: Any, probabilities: Float[Array, "heads n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions with the trained v.

        Raises:
            ValueError: no readout, or one whose shape differs from that of the problem's v.
        """
        found = None if readout is None else jnp.shape(readout)
        if found != problem.v.shape:
            raise ValueError(
                f"params: expected models.Joint(attention, readout) with v of shape {problem.v.shape} as readout, "
                f"found {found}"
            )
        return self.model.predictions(readout, probabilities, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem seen by the attention model."""
        return self.model.seen(problem)

    def matrix(self, weights: Any) -> Float[Array, "*batch d d"]:
        """Return the matrix of the attention model."""
        return self.model.matrix(weights)


def with_values(model: Any = plain) -> Valued:
    """Return a model that trains the head's v beside the attention; the parameters are `Joint(weights, v)`.

    Args:
        model: the attention model: one of `models`, or a `TransformedInputs` of your own.

    Raises:
        ValueError: anything else, such as a plain function, which has no predictions with another v.

    Example:
        >>> params = models.Joint(start, problem.v)
        >>> rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
        >>> descent.train(params, problem, model=models.with_values(), optimizer=rule, steps=10).weights.readout.shape
        (5,)
    """
    is_attention = isinstance(model, TransformedInputs | Heads)
    if not is_attention:
        raise ValueError(
            "model: expected models.TransformedInputs or models.Heads, such as models.plain or models.summed(2), "
            f"found {model!r}"
        )
    return Valued(model)
