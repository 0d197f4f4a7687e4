"""Internal: a damped Newton step for the smallest risk on the boundary of a ball.

On the sphere `||x|| = r` of a ball's coordinates a minimizer satisfies `g + lambda x = 0`, with g the gradient of the
risk. A step d solves `(A + tau) d = -(g + lambda x) + nu x`, `<x, d> = 0`, with A the Hessian of the Lagrangian (see
`inverses`). The risk's gradient and Hessian are formed up to one positive factor (`gradients.direction`), so they do
not underflow for any R, and values of the risk are never compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxattn.regularization.balls import Ball
from jaxattn.regularization.inverses import Inverse, Linear, by_logits
from jaxattn.svm import constraints as cons
from jaxattn.svm.constraints import Constraints

# Maps the logits minus those of the first tokens, (n, T - 1), to the risk's gradient with respect to them, divided by a
# positive factor, and the logarithm of that factor.
Slope = Callable[[Array], tuple[Array, Array]]

# Fractions of a step to try; the smallest damping, relative to lambda at a solution.
_SHARES = (1.0, 0.5, 0.2, 0.05)
_LEAST = 1e-4
# The largest slope that may remain at the end of a step, upwards, as a fraction of its slope at the beginning.
_UPWARDS = 0.3


class Task(NamedTuple):
    """A risk on a ball: rows whose margins are the logits, the gradient, and how to solve the equations of a step."""

    rows: Constraints
    slope: Slope
    ball: Ball
    inverse: Inverse = by_logits


class Point(NamedTuple):
    """The gradient, Hessian and residual at coordinates on the sphere.

    Attributes:
        logits: the logits minus those of the first tokens, (n, T - 1).
        coefficients: the gradient with respect to the logits, divided by `exp(log_scale)`.
        log_scale: see `gradients.Slope`.
        B: the blocks of the Hessian with respect to the logits, divided by the same factor.
        G: the gradient with respect to W, divided by the same factor.
        dual: the dual norm of G.
        residual: the residual of the ball's first-order conditions (`Ball.residual`).
    """

    logits: Float[Array, "n m"]
    coefficients: Float[Array, "n m"]
    log_scale: Float[Array, ""]
    B: Float[Array, "n m m"]
    G: Float[Array, "p q"]
    dual: Float[Array, ""]
    residual: Float[Array, ""]


class Step(NamedTuple):
    """The result of a step, with what the next one needs.

    Attributes:
        x: the new coordinates, or the old ones if no fraction of the step is acceptable.
        residual: the residual at the old coordinates.
        tangent: the derivative of the path of solutions with respect to the sphere's radius, if the old point was a
            solution.
        damping: tau for the next step.
        good: whether the point moved.
    """

    x: Float[Array, "a b"]
    residual: Float[Array, ""]
    tangent: Float[Array, "a b"]
    damping: Float[Array, ""]
    good: Bool[Array, ""]


def read(task: Task, x: Float[Array, "a b"], R: Float[Array, ""]) -> Point:
    """Evaluate the risk's gradient and Hessian at coordinates on the sphere of a ball of radius R."""
    W = task.ball.matrix(x, task.rows)
    logits = cons.margins(task.rows, W)
    (coefficients, log_scale), changes = jax.linearize(task.slope, logits)

    def column(t: Array) -> Array:
        change, of_scale = changes(jnp.zeros_like(logits).at[:, t].set(1.0))
        return change + coefficients * of_scale

    # Except for that factor, an input's gradient depends only on its own logits, so the derivative along the t-th logit
    # of all inputs at once gives the t-th column of each block.
    B = jax.vmap(column, out_axes=2)(jnp.arange(logits.shape[1]))
    G = cons.combination(task.rows, coefficients)
    dual = task.ball.dual_norm(G)
    residual = task.ball.residual(x, W, G, dual, R)
    return Point(logits, coefficients, log_scale, (B + jnp.swapaxes(B, 1, 2)) / 2, G, dual, residual)


def step(
    task: Task, x: Float[Array, "a b"], R: Float[Array, ""], damping: Float[Array, ""], was_good: Bool[Array, ""]
) -> Step:
    """Make one step on the ball of radius R."""
    now = read(task, x, R)
    ball, rows, G = task.ball, task.rows, now.G
    square = jnp.sum(x * x)
    g = ball.gradient(x, G)
    multiplier = -jnp.sum(g * x) / square
    unit = jnp.sqrt(jnp.sum(g * g) / square)
    level = jnp.maximum(jnp.maximum(multiplier, 0.0), ball.least(G, now.dual)) + damping * unit
    linear = task.inverse(ball, rows, Linear(x, G, level, now.B))
    inside, solved, applied = linear.inside, linear.solved, linear.applied

    def refined(v: Array) -> Array:
        found = solved(v)
        return found + solved(v - applied(found))

    d = refined(-(g + multiplier * x))
    # As the radius grows, x grows and turns such that the gradient stays parallel to it.
    tangent = x - refined(applied(x))
    falls = jnp.sum(g * d)

    def slope_after(share: Array) -> Array:
        """Return the risk's slope along the step at a fraction of it, divided by the slope at its beginning."""
        new = _on_sphere(x + share * d, square)
        logits = cons.margins(rows, ball.matrix(new, rows))
        coefficients, log_scale = task.slope(logits)
        g = ball.gradient(new, cons.combination(rows, coefficients))
        rises = jnp.sum((g - new * jnp.sum(g * new) / square) * d)
        return rises / falls * jnp.exp(log_scale - now.log_scale)

    def shorten(tried: tuple[Array, Array]) -> tuple[Array, Array]:
        left = slope_after(shares[tried[0]])
        return tried[0] + 1, (left >= -_UPWARDS) & jnp.isfinite(left)

    # Nearly all batches try one fraction.
    shares, possible = jnp.asarray(_SHARES, x.dtype), (falls < 0) & inside
    number, good = jax.lax.while_loop(
        lambda tried: possible & ~tried[1] & (tried[0] < shares.size),
        shorten,
        (jnp.zeros((), int), jnp.zeros((), bool)),
    )
    first = jnp.maximum(number - 1, 0)
    # After a failed step, keep the damping with which the next one succeeded.
    relaxed = jnp.where(was_good & (first == 0), damping / 8, damping)
    return Step(
        x=jnp.where(good, _on_sphere(x + shares[first] * d, square), x),
        residual=now.residual,
        tangent=jnp.where(inside, tangent, x) / jnp.sqrt(square),
        damping=jnp.maximum(jnp.where(good, relaxed, jnp.where(inside, 4.0, 16.0) * damping), _LEAST),
        good=good,
    )


def _on_sphere(x: Float[Array, "a b"], square: Float[Array, ""]) -> Float[Array, "a b"]:
    return x * jnp.sqrt(square / jnp.sum(x * x))
