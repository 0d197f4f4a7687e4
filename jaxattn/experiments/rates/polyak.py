"""Polyak's step: the step at which a line with the slope of the gradient would reach the minimal risk."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxattn import checks, losses
from jaxattn.descent.optimizers import length_of

# Below this distance from the best margin the risk is linear in it, to seven digits.
_LINE = 1e-7


class Polyak(optax.GradientTransformationExtraArgs):
    """An optimizer that moves by `factor (L - L*) / ||gradient||^2 * gradient`, given `value = L - L*` at each step.

    `steps.followed` gives it both in the log domain, where their ratio does not underflow.
    """


def polyak(factor: float = 1.0) -> Polyak:
    """Return Polyak's steps (2402.05738, as recalled), times a factor."""
    return Polyak(partial(_init, checks.positive("factor", factor)), _update)


def _init(factor: float, params: optax.Params) -> Float[Array, ""]:
    return jnp.asarray(factor, jax.tree.leaves(params)[0].dtype)


def _update(updates: Any, state: Any, params: Any = None, *, value: Any = None, **others: Any) -> tuple[Any, Any]:
    del params, others
    if value is None:
        raise ValueError(
            "optimizer: expected one that needs the gradient alone, found Polyak's steps, which need the distance of "
            "the risk from its least value; the record Rates in jaxattn.experiments.rates.ngd_global gives them that"
        )
    square = length_of(updates, 0) ** 2
    rate = jnp.where(square > 0, state * value / jnp.where(square > 0, square, 1.0), 0.0)
    return jax.tree.map(lambda gradient: -rate * gradient, updates), state


def log_excess(
    logits: Float[Array, "n T"], scores: Float[Array, "n T"], loss: losses.Loss, log_scale: Float[Array, ""]
) -> Float[Array, ""]:
    """Return `log(L - L*) - log_scale`, accurate however small the distance `L - L*` of the risk from its minimum is.

    With the scores `g_it = Y_i <v, x_it>` an input's margin is `sum_t s_it g_it`, which is below the best score by
    `sum_t s_it (max g_i - g_it)`. The scale is subtracted before anything is rounded.

    Raises:
        ValueError: a loss whose slope is not known to `losses.log_slope`.
    """
    log_slope = losses.log_slope(loss)
    if log_slope is None:
        raise ValueError(f"loss: expected one whose log_slope is known such as logistic, found {loss!r}")
    best = jnp.max(scores, axis=1)
    behind = best[:, None] - scores
    relative = logits - jnp.max(logits, axis=1, keepdims=True)
    normalizer = jax.nn.logsumexp(relative, axis=1)
    weighted = jnp.where(behind > 0, jnp.log(jnp.where(behind > 0, behind, 1.0)), -jnp.inf)
    scaled = jax.nn.logsumexp(relative - log_scale + weighted, axis=1) - normalizer
    short = jnp.exp(jax.nn.logsumexp(relative + weighted, axis=1) - normalizer)
    of_line = scaled + log_slope(best)
    difference = loss(best - short) - loss(best)
    exact = jnp.log(jnp.where(difference > 0, difference, 1.0)) - log_scale
    each = jnp.where(short < _LINE, of_line, exact)
    return jax.nn.logsumexp(each) - jnp.log(logits.shape[0])
