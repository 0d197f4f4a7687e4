"""Internal: where a run stalls: the step from which its weights are moved by other things than the gradient.

A rule that divides by the gradient's length gives what is wrong with a small gradient the length of a full step. Three
things are: the rounding errors of a gradient formed as published, the floor that its length is divided with, and the
gradient of the penalty. None of them falls with the gradient, so that the run ends where they are as large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import losses
from jaxattn.attention import Factored, Weights
from jaxattn.descent import gradients
from jaxattn.descent.optimizers import along, jointly_normalized_gd
from jaxattn.descent.pacing import Paced, plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

# A gradient counts as lost from where the other things are half as long.
_SHARE = 0.5
NEVER = -1


def stalled(
    gradient_norm: Float[Array, "steps *lanes"], others: Float[Array, "*lanes"], record_every: int
) -> Int[Array, "*lanes"]:
    """Return the first step of a series whose gradient is at most twice as long as what else moves the weights.

    Args:
        gradient_norm: of the steps 0, record_every, ...
        others: length of what else moves them.
        record_every: steps from one entry to the next.

    Returns: `NEVER` where there is none.
    """
    lost = lanes.spread(others, gradient_norm) >= _SHARE * gradient_norm
    return jnp.where(jnp.any(lost, axis=0), jnp.argmax(lost, axis=0) * record_every, NEVER)


def added(weights: Any, state: Any, update: Callable[..., Any]) -> Float[Array, "*lanes"] | float:
    """Return how much longer floor and penalty make a gradient; those of other packages have neither.

    Args:
        weights: where a run ends; there these are about what they were when it stalled, as it hardly moves since.
        state: of the optimizer.
        update: of the optimizer.
    """
    moves = along(plain(update))
    if moves is None:
        return 0.0
    numbers = state.rule if isinstance(update, Paced) else state
    if not isinstance(weights, Factored):
        return numbers.floor
    return numbers.floor + 2 * moves.penalty(numbers) * jnp.sqrt(_square(weights))


def rounding(
    weights: Weights, logits: Float[Array, "n T *lanes"], problem: Problem, read: gradients.Reading, loss: losses.Loss
) -> Float[Array, "*lanes"]:
    """Return how long the rounding errors of a gradient as published are; of factors, at most about so long.

    Args:
        weights: where a run ends, as in `added`.
        logits: of them, -inf where an input does not see a token.
        problem: of the run.
        read: how the head reads the attention.
        loss: of one margin.
    """
    errors = gradients.errors(lanes.before(), logits, problem.Y, read, loss).coefficients
    squares = errors**2 * jnp.sum(problem.X**2, axis=2) * jnp.sum(problem.Z**2, axis=1)[:, None]
    of_W = jnp.sqrt(jnp.sum(squares, axis=(0, 1)))
    # With respect to K it is multiplied by Q, with respect to Q by K. Exactly so it would compile for a second.
    return of_W * jnp.sqrt(_square(weights)) if isinstance(weights, Factored) else of_W


def _square(weights: Factored) -> Float[Array, "*lanes"]:
    """Return `||K||_F^2 + ||Q||_F^2`."""
    return jnp.sum(weights.K**2, axis=(0, 1)) + jnp.sum(weights.Q**2, axis=(0, 1))


def going_on(update: Callable[..., Any]) -> str:
    """Return what goes on where an optimizer stalls, as a line of Python; of a paced one, what it is to pace."""
    if along(plain(update)) is None:
        return "descent.ScaleFree(*optimizer), if it is blind to the gradient's scale,"
    joint = plain(update) is jointly_normalized_gd(1.0).update
    return f"descent.{'jointly_' if joint else ''}normalized_gd(step, floor=0, penalty=0)"
