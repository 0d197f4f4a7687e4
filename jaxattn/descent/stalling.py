"""Internal: detect where a run stalls, that is, where other things than the gradient move its weights.

A rule that divides by the gradient's length amplifies every error of a small gradient to the length of a full step.
There are three: the rounding errors of a gradient formed as published, the floor added to its length, and the gradient
of the penalty. They do not fall with the gradient, so the run stalls when they are as large.
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
from jaxattn.descent.step_schedules import Scheduled, plain
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

# The gradient counts as lost once the errors are this fraction of its length.
_SHARE = 0.5
NEVER = -1


def stalled(
    gradient_norm: Float[Array, "steps *lanes"], others: Float[Array, "*lanes"], record_every: int
) -> Int[Array, "*lanes"]:
    """Return the first recorded step at which the gradient is at most twice as long as the errors, or `NEVER`."""
    lost = lanes.spread(others, gradient_norm) >= _SHARE * gradient_norm
    return jnp.where(jnp.any(lost, axis=0), jnp.argmax(lost, axis=0) * record_every, NEVER)


def added(weights: Any, state: Any, update: Callable[..., Any]) -> Float[Array, "*lanes"] | float:
    """Return the length that floor and penalty add to a gradient; 0 for optimizers of other packages.

    The final weights stand for those at the stall, since they hardly move afterwards.
    """
    moves = along(plain(update))
    if moves is None:
        return 0.0
    numbers = state.rule if isinstance(update, Scheduled) else state
    if not isinstance(weights, Factored):
        return numbers.floor
    return numbers.floor + 2 * moves.penalty(numbers) * jnp.sqrt(_square(weights))


def rounding(
    weights: Weights, logits: Float[Array, "n T *lanes"], problem: Problem, read: gradients.Reading, loss: losses.Loss
) -> Float[Array, "*lanes"]:
    """Estimate the length of a published gradient's rounding errors at weights; for factors, roughly an upper bound."""
    errors = gradients.errors(lanes.before(), logits, problem.Y, read, loss).coefficients
    squares = errors**2 * jnp.sum(problem.X**2, axis=2) * jnp.sum(problem.Z**2, axis=1)[:, None]
    of_W = jnp.sqrt(jnp.sum(squares, axis=(0, 1)))
    # The gradient of K is multiplied by Q, that of Q by K. The exact formula would take a second to compile.
    return of_W * jnp.sqrt(_square(weights)) if isinstance(weights, Factored) else of_W


def _square(weights: Factored) -> Float[Array, "*lanes"]:
    """Return `||K||_F^2 + ||Q||_F^2`."""
    return jnp.sum(weights.K**2, axis=(0, 1)) + jnp.sum(weights.Q**2, axis=(0, 1))


def going_on(update: Callable[..., Any]) -> str:
    """Return code of an optimizer that continues where this one stalls; for a scheduled one, of its inner optimizer."""
    if along(plain(update)) is None:
        return "descent.ScaleFree(*optimizer), if it is blind to the gradient's scale,"
    joint = plain(update) is jointly_normalized_gd(1.0).update
    return f"descent.{'jointly_' if joint else ''}normalized_gd(step, floor=0, penalty=0)"
