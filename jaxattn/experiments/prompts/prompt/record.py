"""Training of the prompt p itself, with logits `X_i p`; its arrays have the place of W's in the record."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn.problem import Problem
from jaxattn.study.settings import parameters
from jaxattn.study.settings.training import Training


def prompt(p: Float[Array, "d 1"], problem: Problem) -> Float[Array, "n T"]:
    """Return the logits `X_i p`."""
    return problem.X @ p[:, 0]


def zero(key: PRNGKeyArray, d: int) -> Float[Array, "d 1"]:
    """Start at `p = 0`; draws nothing."""
    del key
    return jnp.zeros((d, 1))


class Prompts(Training):
    """A `Training` whose parameters are a prompt, (d, 1), instead of W."""

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        axes = super().dims(name)
        return (*axes[:-1], "unit") if parameters.is_parameter(name) else axes
