"""The gradient of the risk: as it is, and up to a positive factor, formed in the log domain.

A softmax that has all but selected its tokens leaves a gradient below the smallest number there is (about
`exp(-745)` in double precision), and descent stops where a rule that divides by the gradient's length should
go on. `direction` factors the common exponent out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, heads, losses
from jaxattn.attention import Factored, Weights
from jaxattn.problem import Problem


class Slope(NamedTuple):
    """The gradient of the risk at some weights, `exp(log_scale) * slope`, and what was read on the way.

    Attributes:
        risk: the empirical risk, ().
        probabilities: of the attention, (n, T).
        slope: a pytree like the weights.
        log_scale: (); 0 where the slope is the gradient itself, -inf where the gradient is zero.
    """

    risk: Float[Array, ""]
    probabilities: Float[Array, "n T"]
    slope: Weights
    log_scale: Float[Array, ""]


Rule = Callable[[Weights, Problem, losses.Loss, heads.Head], Slope]


def gradient(weights: Weights, problem: Problem, loss: losses.Loss, head: heads.Head) -> Slope:
    """Return the gradient itself, by automatic differentiation."""

    def objective(weights: Weights) -> tuple[Array, Array]:
        return losses.risk_and_probabilities(weights, problem, loss=loss, head=head)

    (risk, probabilities), slope = jax.value_and_grad(objective, has_aux=True)(weights)
    return Slope(risk, probabilities, slope, jnp.zeros_like(risk))


def direction(weights: Weights, problem: Problem, loss: losses.Loss, head: heads.Head) -> Slope:
    """Return the gradient divided by its common exponent factor, exact however small the gradient is.

    With a the largest logit's token, `g_i = grad h(x_i^T s_i)` and `c_i = Y_i loss'(Y_i f_i) / n`, the
    gradient with respect to W is

        sum_i c_i sum_{t != a} s_it (<g_i, x_it - x_ia> - sum_u s_iu <g_i, x_iu - x_ia>) (x_it - x_ia) z_i^T :

    only differences to the selected token occur, each with a probability other than the selected one's, so nothing
    cancels and these probabilities may share a factor of any size (softmax derivative, as in 2308.16898, section 2).
    A loss whose own slope underflows gives no part: margins above 745 of the logistic loss, say.
    """
    logits = attention.logits(weights, problem)
    exponents = jax.nn.log_softmax(logits, axis=-1)
    probabilities = jnp.exp(exponents)
    outputs = attention.attended(probabilities, problem)
    predictions, of_outputs = jax.vmap(jax.value_and_grad(head), in_axes=(0, None))(outputs, problem.v)
    margin_losses, of_margins = jax.vmap(jax.value_and_grad(loss))(problem.Y * predictions)
    c = problem.Y * of_margins / problem.Y.size

    top = jnp.argmax(logits, axis=-1, keepdims=True)
    others = jnp.arange(logits.shape[-1])[None, :] != top
    apart = problem.X - jnp.take_along_axis(problem.X, top[..., None], axis=-2)
    worth = jnp.einsum("ntd,nd->nt", apart, of_outputs)
    relative = worth - jnp.sum(probabilities * worth, axis=-1, keepdims=True)
    # The exponents of c_i s_it: log s_it is finite where s_it is not.
    size = jnp.where(c != 0, jnp.abs(c), 1.0)
    exponents = exponents + jnp.log(size)[:, None]
    exponents = jnp.where(others & (c != 0)[:, None] & (relative != 0), exponents, -jnp.inf)
    largest = jnp.max(exponents)
    shares = jnp.exp(exponents - jnp.where(jnp.isfinite(largest), largest, 0.0))
    y = jnp.einsum("nt,ntd->nd", jnp.sign(c)[:, None] * shares * relative, apart)
    return Slope(jnp.mean(margin_losses), probabilities, _with_queries(y, weights, problem.Z), largest)


def _with_queries(y: Float[Array, "n d"], weights: Weights, Z: Float[Array, "n d"]) -> Weights:
    """Return the gradient of `sum_i y_i^T W z_i`."""
    if isinstance(weights, Factored):
        return Factored(y.T @ (Z @ weights.Q), Z.T @ (y @ weights.K))
    return y.T @ Z
