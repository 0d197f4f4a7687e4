"""The gradient of the risk with respect to the logits, as it is or up to a positive factor in the log domain.

With these coefficients a, (n, T), the gradient with respect to W is `sum_it a_it x_it z_i^T`, for any head and loss.
Once the softmax has nearly selected its tokens, the coefficients underflow (at about `exp(-745)` in double precision),
and a rule that divides by the gradient's length stops. `direction` factors out the common exponent.

Arrays may have lanes as trailing axes (see `lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxattn import heads, losses
from jaxattn.descent.optimizers import Exact, ScaleFree
from jaxattn.parallel import lanes
from jaxattn.problem import Problem

__all__ = ["Reading", "Rule", "Slope", "direction", "errors", "exact", "gradient", "reading"]


class Slope(NamedTuple):
    """The gradient of the risk at some logits, `exp(log_scale) * coefficients`, with losses and probabilities.

    Attributes:
        losses: the losses of the inputs, (n,).
        probabilities: the attention, (n, T).
        coefficients: the scaled gradient, (n, T); each input's coefficients add up to zero.
        log_scale: (); 0 if the coefficients are the gradient itself, -inf if the gradient is zero.
    """

    losses: Float[Array, "n *lanes"]
    probabilities: Float[Array, "n T *lanes"]
    coefficients: Float[Array, "n T *lanes"]
    log_scale: Float[Array, "*lanes"]


# Maps probabilities, (n, T), to predictions, (n,), and their derivatives `<grad h, x_it>`, (n, T), the worth of tokens.
Reading = Callable[[Int[Array, ""], Array], tuple[Array, Array]]
Rule = Callable[[Int[Array, ""], Array, Array, Reading, losses.Loss], Slope]


def reading(problem: Problem, head: heads.Head) -> Reading:
    """Return how a head reads the attention of a problem.

    Raises:
        ValueError: a head of `heads` that does not fit the problem's v.

    Example:
        >>> from jaxattn.descent import gradients
        >>> logits, read = attention.logits(start, problem), gradients.reading(problem, heads.linear)
    """
    X, v = problem.X, problem.v
    number = problem.Y.ndim - 1
    if head is heads.linear:
        heads.check("linear", v.shape[: v.ndim - number])
        # No attention output is needed: predictions are means of the tokens' constant scores.
        worth = lanes.einsum(lanes.before(), "ntd,d->nt", X, v)
        return lambda step, probabilities: (jnp.sum(probabilities * worth, axis=1), worth)

    if head is heads.mlp:
        # No attention output is needed: the layer's inputs are means of constant values per token.
        heads.check("mlp", v.shape[: v.ndim - number], axes=2)
        seen = lanes.einsum(lanes.before(), "ntd,dw->ntw", X, v)

        def through(step: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
            units = lanes.einsum(step, "nt,ntw->nw", probabilities, seen)
            worth = lanes.einsum(step, "ntw,nw->nt", seen, (units > 0).astype(units.dtype))
            return jnp.sum(jnp.maximum(units, 0), axis=1), worth

        return through

    of_one = jax.vmap(jax.value_and_grad(head), in_axes=(0, None))
    for _ in range(number):
        of_one = jax.vmap(of_one, in_axes=-1, out_axes=-1)

    def read(step: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        outputs = lanes.einsum(step, "nt,ntd->nd", probabilities, X)
        predictions, of_outputs = of_one(outputs, v)
        return predictions, lanes.einsum(step, "ntd,nd->nt", X, of_outputs)

    return read


def gradient(step: Int[Array, ""], logits: Array, Y: Array, read: Reading, loss: losses.Loss) -> Slope:
    """Return the gradient itself, term by term as automatic differentiation forms it.

    Args:
        step: the number of the current step, for `lanes.stored`.
        logits: (n, T); -inf for tokens that the input does not see, which do not contribute.
        Y: labels, (n,).
        read: how the head reads the attention, as returned by `reading`.
        loss: a function of one margin.

    Example:
        >>> from jaxattn.descent import gradients
        >>> logits, read = attention.logits(start, problem), gradients.reading(problem, heads.linear)
        >>> slope = gradients.gradient(jnp.asarray(0), logits, problem.Y, read, losses.logistic)
    """
    probabilities = jax.nn.softmax(logits, axis=1)
    predictions, worth = read(step, probabilities)
    values, of_margins = _slopes(loss, Y * predictions)

    def coefficients() -> Array:
        relative = worth - jnp.sum(probabilities * worth, axis=1, keepdims=True)
        return (Y * of_margins / Y.shape[0])[:, None] * probabilities * relative

    return Slope(values, probabilities, lanes.stored(step, coefficients), jnp.zeros(logits.shape[2:], logits.dtype))


def errors(step: Int[Array, ""], logits: Array, Y: Array, read: Reading, loss: losses.Loss) -> Slope:
    """Return estimates of the rounding errors of `gradient`, as the coefficients of a Slope.

    They are eps times the terms whose difference it takes, `c_i s_it w_it` and `c_i s_it sum_u s_iu w_iu`. At a
    selected token these are almost equal, however small their difference. The arguments are those of `gradient`.

    Example:
        >>> from jaxattn.descent import gradients
        >>> logits, read = attention.logits(start, problem), gradients.reading(problem, heads.linear)
        >>> wrong = gradients.errors(jnp.asarray(0), logits, problem.Y, read, losses.logistic)
    """
    probabilities = jax.nn.softmax(logits, axis=1)
    predictions, worth = read(step, probabilities)
    values, of_margins = _slopes(loss, Y * predictions)
    terms = jnp.abs(worth) + jnp.sum(probabilities * jnp.abs(worth), axis=1, keepdims=True)
    size = jnp.finfo(logits.dtype).eps * jnp.abs(of_margins / Y.shape[0])
    return Slope(values, probabilities, size[:, None] * probabilities * terms, jnp.zeros_like(logits[0, 0]))


def direction(step: Int[Array, ""], logits: Array, Y: Array, read: Reading, loss: losses.Loss) -> Slope:
    """Return the gradient divided by its common exponential factor, exact however small the gradient is.

    With `a` the token of largest logit, `w_it = <grad h, x_it - x_ia>` and `c_i = Y_i loss'(Y_i f_i) / n`, the
    coefficients are `c_i s_it (w_it - sum_u s_iu w_iu)` (softmax derivative, as in 2308.16898, section 2). As `w_ia =
    0`, nearly equal numbers are never subtracted, and the probabilities of the other tokens and the loss's derivative
    may share an exponent of any size. The arguments are those of `gradient`.

    If the derivative of the loss underflows, `losses.log_slope` must know its logarithm.

    Example:
        >>> from jaxattn.descent import gradients
        >>> logits, read = attention.logits(start, problem), gradients.reading(problem, heads.linear)
        >>> slope = gradients.direction(jnp.asarray(0), logits, problem.Y, read, losses.logistic)
    """
    probabilities = jax.nn.softmax(logits, axis=1)
    predictions, worth = read(step, probabilities)
    margins = Y * predictions
    values, _ = _slopes(loss, margins)
    sign, exponent = log_slope(loss, margins)
    return factored(step, logits, Slope(values, probabilities, worth, exponent), Y * sign)


def factored(step: Int[Array, ""], logits: Array, found: Slope, sign: Array) -> Slope:
    """Return the gradient divided by its common exponential factor, for factors `c_i` with the signs `sign`.

    `found` holds losses and probabilities, as coefficients the worth w of the tokens, (n, T), up to a constant per
    input, and as log_scale the logarithm of n |c_i|, (n,).
    """
    values, probabilities, worth, exponent = found
    # Subtract the mean worth of the tokens with the largest logit: a constant may be subtracted from an input's worth.
    top = jnp.max(logits, axis=1)
    selected = lanes.stored(step, lambda: (logits == top[:, None]).astype(logits.dtype))
    of_selected = jnp.sum(selected * worth, axis=1) / jnp.sum(selected, axis=1)
    apart = lanes.stored(step, lambda: worth - of_selected[:, None])
    # Scale each input by the largest logit of a token whose worth differs from the selected one's.
    second = jnp.max(jnp.where(apart != 0, logits, -jnp.inf), axis=1)
    tells = second > -jnp.inf
    second = jnp.where(tells, second, top)
    parts = lanes.stored(step, lambda: jnp.exp(jnp.minimum(logits - second[:, None], 0)) * apart)
    mean = jnp.sum(parts, axis=1, keepdims=True)

    exponent = lanes.stored(step, lambda: jnp.where(tells, second - top + exponent, -jnp.inf))
    log_scale = jnp.max(exponent, axis=0)
    size = jnp.exp(exponent - lanes.spread(jnp.where(jnp.isfinite(log_scale), log_scale, 0), exponent))
    of_top = jnp.max(probabilities, axis=1)
    size = lanes.stored(step, lambda: sign * size * of_top / sign.shape[0])
    coefficients = lanes.stored(step, lambda: size[:, None] * (parts - probabilities * mean))
    return Slope(values, probabilities, coefficients, log_scale)


def exact(step: Int[Array, ""], logits: Array, Y: Array, read: Reading, loss: losses.Loss) -> Slope:
    """Return the gradient itself, computed from its direction: without cancellation, until it underflows.

    The arguments are those of `gradient`.

    Example:
        >>> from jaxattn.descent import gradients
        >>> logits, read = attention.logits(start, problem), gradients.reading(problem, heads.linear)
        >>> slope = gradients.exact(jnp.asarray(0), logits, problem.Y, read, losses.logistic)
    """
    return multiplied(step, direction(step, logits, Y, read, loss))


def multiplied(step: Int[Array, ""], slope: Slope) -> Slope:
    """Return a gradient with its factor multiplied in."""
    factor = lanes.spread(jnp.exp(slope.log_scale), slope.coefficients)
    coefficients = lanes.stored(step, lambda: slope.coefficients * factor)
    return slope._replace(coefficients=coefficients, log_scale=jnp.zeros_like(slope.log_scale))


def rule_of(optimizer: optax.GradientTransformation, published: bool = True) -> Rule:
    """Return the rule that forms an optimizer's gradient: only its direction, exact, or as published if that is known.

    Args:
        optimizer: any optax transformation.
        published: whether the published gradient is defined; if not, it is replaced by the exact one.
    """
    if isinstance(optimizer, ScaleFree):
        return direction
    return exact if isinstance(optimizer, Exact) or not published else gradient


def _slopes(loss: losses.Loss, margins: Array) -> tuple[Array, Array]:
    """Return the losses at margins of any shape, and their derivatives."""
    values, slopes = jax.vmap(jax.value_and_grad(loss))(margins.ravel())
    return values.reshape(margins.shape), slopes.reshape(margins.shape)


def log_slope(loss: losses.Loss, margins: Float[Array, "n *lanes"]) -> tuple[Array, Array]:
    """Return the sign of the loss's derivative at each margin, and the logarithm of its size, -inf if it is zero."""
    known = losses.log_slope(loss)
    if known is not None:
        return -jnp.ones_like(margins), known(margins)
    slopes = _slopes(loss, margins)[1]
    return jnp.sign(slopes), jnp.log(jnp.abs(slopes))
