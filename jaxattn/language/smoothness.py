"""Lipschitz constants of risks of softmax attention: proven bounds, valid for all W and close to observed values.

The gradient has the Lipschitz constant L if no second derivative is larger. All bounds here have one form. The logits
of input i are `E W e_a`, with a its last word. If the second derivative of its loss with respect to the logits is
between -c_i and c_i, and zero along (1, .., 1), then that of the risk is between minus and plus the matrix `(sum_i w_i
c_i e_a e_a^T) x (F^T F)`, with F the embeddings minus their mean, w_i the weight of the input, and x the Kronecker
product. So

    L <= lambda_max(sum_i w_i c_i e_a e_a^T) sigma_max(F)^2.

It remains to bound c_i. Below, u is a direction of the logits with `||u|| = 1`; mean E, variance Var and covariance Cov
are with respect to the attention; the range of u is at most sqrt 2, so that `Var u <= 1/2`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn.language.choices import Choices

__all__ = ["cross_entropy_bound", "score_bound", "squared_bound"]


def cross_entropy_bound(choices: Choices) -> Float[Array, ""]:
    """Return a Lipschitz constant of the gradient of `risk` with the cross entropy of the next word's probability, ().

    The second derivative of `log sum_t exp(u_t)` is `Var u`, so c_i = 1/2.

    Raises:
        ValueError: choices with scores, whose attended sum is not a probability.

    Example:
        >>> float(language.cross_entropy_bound(text)) > 0
        True
    """
    if choices.scores is not None:
        raise ValueError("cross_entropy_bound: expected choices without scores of their own, found some")
    return _bound(choices, jnp.full(choices.last.shape, 0.5, choices.E.dtype))


def score_bound(choices: Choices, bend: float = 0.25, slope: float = 1.0) -> Float[Array, ""]:
    """Return a Lipschitz constant of the gradient of `risk` with a smooth loss of the attended score, ().

    With scores gamma in an interval of length D, c_i = bend D^2 / 8 + slope D / 4:

    - The gradient of `f = E gamma` with respect to the logits is p_t (gamma_t - f). Its positive and negative entries
      have the same sum, `E |gamma - f| / 2 <= D / 4`, so its length is at most `D / sqrt 8`.
    - Its second derivative is `Cov(gamma, x)`, `x = (u - E u)^2`, which is at most `D / 2 E |x - E x|`. Let r be the
      range of u, and q r <= r / 2 the distance of E u from the nearer end. Then x is at most `b = (1 - q)^2 r^2`, its
      mean is `Var u <= q (1 - q) r^2`, and `E |x - E x| <= 2 E x (1 - E x / b)`. For q <= 1/3 this is at most
      `2 q (1 - 2 q) r^2 <= r^2 / 4`, otherwise at most `b / 2 <= 2 r^2 / 9`; and `r^2 <= 2`.

    `bend` and `slope` bound the absolute second and first derivatives of the loss; the defaults are the logistic ones.

    Example:
        >>> scored = language.close_scores(key, text, delta=0.0)
        >>> float(language.score_bound(scored)) > 0
        True
    """
    seen, worth = _candidates(choices), choices.worth
    D = jnp.max(jnp.where(seen, worth, -jnp.inf), axis=-1) - jnp.min(jnp.where(seen, worth, jnp.inf), axis=-1)
    return _bound(choices, bend * D**2 / 8 + slope * D / 4)


def squared_bound(choices: Choices) -> Float[Array, ""]:
    """Return a Lipschitz constant of the gradient of `squared_risk`, ().

    With D the largest distance between two candidates, c_i = 3 D^2 / 8. Along any unit vector v, the attended embedding
    `E e` is a score with values `v . e_t` in an interval of length D, and the residual is at most D long: the bound is
    that of `score_bound` for a loss with second derivative 1 and first derivative at most D.

    Example:
        >>> float(language.squared_bound(text)) > 0
        True
    """
    E, seen = choices.E, _candidates(choices)
    square = jnp.sum(E**2, axis=-1)
    apart = jnp.sqrt(jnp.maximum(square[:, None] + square[None, :] - 2 * E @ E.T, 0.0))
    # The next word of an input that is not excluded is a candidate.
    both = seen[:, :, None] & seen[:, None, :]
    D = jnp.max(jnp.where(both, apart[None, :, :], 0.0), axis=(1, 2))
    return _bound(choices, D**2 / 8 + D * D / 4)


def _candidates(choices: Choices) -> Array:
    if choices.counts is None:
        return jnp.ones((*choices.last.shape, choices.E.shape[-2]), bool)
    return choices.counts > 0


def _bound(choices: Choices, c: Float[Array, " N"]) -> Float[Array, ""]:
    asking = jnp.sqrt(choices.share * c)[:, None] * choices.E[choices.last]
    apart = choices.E - jnp.mean(choices.E, axis=0, keepdims=True)
    return jnp.linalg.norm(asking, ord=2) ** 2 * jnp.linalg.norm(apart, ord=2) ** 2
