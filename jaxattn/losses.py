"""Losses of the margin `Y f`, and the empirical risk.

A loss is any pure, decreasing function from one margin to one number.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, heads
from jaxattn.problem import Problem

Loss = Callable[[Float[Array, ""]], Float[Array, ""]]


def logistic(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """`log(1 + exp(-x))`, formed without overflow at either end."""
    return jax.nn.softplus(-margin)


def exponential(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """`exp(-x)`; finite for margins above -709 in double and -88 in single precision."""
    return jnp.exp(-margin)


def correlation(margin: Float[Array, "..."]) -> Float[Array, "..."]:
    """The linear loss `-x`, whose risk is minus the correlation of labels and predictions."""
    return -margin


def risk_and_probabilities(
    weights: attention.Weights,
    problem: Problem,
    *,
    loss: Loss = logistic,
    head: heads.Head = heads.linear,
) -> tuple[Float[Array, ""], Float[Array, "n T"]]:
    """Return the risk, (), and the attention probabilities it was read through, (n, T)."""
    probabilities = attention.probabilities(weights, problem)
    outputs = attention.attended(probabilities, problem)
    predictions = jax.vmap(head, in_axes=(0, None))(outputs, problem.v)
    return jnp.mean(jax.vmap(loss)(problem.Y * predictions)), probabilities


def risk(
    weights: attention.Weights,
    problem: Problem,
    *,
    loss: Loss = logistic,
    head: heads.Head = heads.linear,
) -> Float[Array, ""]:
    """Return the empirical risk `L = mean_i loss(Y_i h(X_i^T s_i))`, () (2308.16898, eq. ERM).

    Raises:
        ValueError: weights that do not fit the problem.
    """
    return risk_and_probabilities(weights, problem, loss=loss, head=head)[0]
