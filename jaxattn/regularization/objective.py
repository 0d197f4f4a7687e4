"""Internal: risks in the form that Newton steps need, and the evidence of a point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import attention, checks, heads, losses
from jaxattn.attention import Weights
from jaxattn.descent import gradients
from jaxattn.parallel import lanes
from jaxattn.problem import Problem
from jaxattn.regularization.newton import Slope, Task, read
from jaxattn.svm import constraints as cons

# Risks whose relative difference is below this are compared by their excess over the risk of the optimal tokens.
_EQUAL = 1e-9


class End(NamedTuple):
    """A point on each radius, with its evidence."""

    weights: Weights
    W: Float[Array, "radii d d"]
    risk: Float[Array, " radii"]
    excess: Float[Array, " radii"]
    residual: Float[Array, " radii"]
    solved: Bool[Array, " radii"]


@dataclass(frozen=True)
class Surprise:
    """The loss `-log p` of a probability p."""

    def __call__(self, p: Array) -> Array:
        """Return `-log p`."""
        return -jnp.log(p)

    def log_slope(self, p: Array) -> Array:
        """Return the logarithm of the absolute slope."""
        return -jnp.log(p)


def of_tokens(alpha: Int[Array, " n"]) -> gradients.Reading:
    """Return the reading whose predictions are the probabilities of one token of each input."""

    def of(_: Array, probabilities: Array) -> tuple[Array, Array]:
        chosen = jax.nn.one_hot(alpha, probabilities.shape[1], dtype=probabilities.dtype)
        return jnp.sum(chosen * probabilities, axis=1), chosen

    return of


def slope_of(problem: Problem, Y: Float[Array, " n"], reading: gradients.Reading, loss: losses.Loss) -> Slope:
    """Return a risk's gradient in the form that Newton steps need.

    Raises:
        ValueError: a loss that is not a function to one number.
    """
    checks.function("loss", loss, ("margin",))
    jax.eval_shape(partial(losses.of_each, loss), Y)

    def of(logits: Array) -> tuple[Array, Array]:
        full = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
        slope = gradients.direction(lanes.before(), attention.masked(full, problem), Y, reading, loss)
        return slope.coefficients[:, 1:], slope.log_scale

    return of


def first(task: Task) -> Float[Array, "a b"]:
    """Return coordinates of the direction of steepest descent at `W = 0`."""
    coefficients, _ = task.slope(jnp.zeros(task.rows.differences.shape[:2], task.rows.differences.dtype))
    return task.ball.toward(-cons.combination(task.rows, coefficients))


def read_path(
    task: Task,
    problem: Problem,
    reduction: cons.Reduction,
    optimal: Int[Array, " n"],
    radii: Float[Array, " radii"],
    x: Float[Array, "radii a b"],
    tolerance: float,
    loss: losses.Loss,
    head: heads.Head,
) -> End:
    """Compute weights and evidence of a path from its final coordinates."""

    def one(x: Array, R: Array) -> End:
        weights = task.ball.weights(x, reduction)
        point = read(task, x, R)
        given_up = ~(jnp.sum(x * x) > 0)
        residual = jnp.where(given_up | ~jnp.isfinite(point.residual), jnp.inf, point.residual)
        risk = losses.risk(weights, problem, loss=loss, head=head)
        excess = excess_of(weights, problem, optimal, loss, head)
        return End(weights, attention.matrix(weights), risk, excess, residual, residual <= tolerance)

    return jax.vmap(one)(x, radii)


def excess_of(
    weights: Weights, problem: Problem, optimal: Int[Array, " n"], loss: losses.Loss, head: heads.Head
) -> Float[Array, ""]:
    """Return `log(risk - risk of the optimal tokens)`, finite however small the difference is.

    Accurate to first order in the attention to other tokens, which is very small if double precision cannot
    distinguish two risks.
    """
    log_share = jax.nn.log_softmax(attention.logits(weights, problem), axis=1)
    predictions, worth = gradients.reading(problem, head)(lanes.before(), jnp.exp(log_share))
    lost = problem.Y[:, None] * (jnp.take_along_axis(worth, optimal[:, None], axis=1) - worth)
    margins = problem.Y * predictions
    known = losses.log_slope(loss) or (lambda margin: jnp.log(jnp.abs(jax.vmap(jax.grad(loss))(margin))))
    return jax.scipy.special.logsumexp(
        log_share + known(margins)[:, None] - jnp.log(problem.n), b=jnp.maximum(lost, 0.0)
    )


def lower(one: End, other: End) -> Bool[Array, "..."]:
    """Return whether the first of two points has the lower risk."""
    apart = jnp.abs(one.risk - other.risk) > _EQUAL * jnp.abs(other.risk)
    return jnp.where(apart, one.risk < other.risk, one.excess < other.excess)
