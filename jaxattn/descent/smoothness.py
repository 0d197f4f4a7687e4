"""A Lipschitz constant of the risk's gradient, which gives a safe step size for plain gradient descent."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn.problem import Problem

__all__ = ["bound"]


def bound(problem: Problem, bend: float = 0.25, slope: float = 1.0) -> Float[Array, ""]:
    """Return a Lipschitz constant L of the gradient of the risk of a free W with a linear head, ().

    `||grad L(W) - grad L(W')||_F <= L ||W - W'||_F` with `L = mean_i a_i b_i`, `a_i = ||v|| ||z_i||^2 ||X_i||^3` and
    `b_i = bend ||v|| ||X_i|| + 3 slope`, where `||X_i||` is the spectral norm of the tokens that input i sees
    (2308.16898, lemma on smoothness). Descent with a step of at most 1 / L never increases the risk.

    Args:
        problem: one problem.
        bend: a Lipschitz constant of the loss's derivative, the paper's M_0. Default: 1/4, for the logistic loss.
        slope: a bound of the absolute derivative of the loss, the paper's M_1. Default: 1, for the logistic loss.

    Example:
        >>> from jaxattn.descent import smoothness
        >>> run = descent.train(start, problem, optimizer=descent.gd(1 / float(smoothness.bound(problem))), steps=10)
    """
    seen = problem.X if problem.present is None else jnp.where(problem.present[..., None], problem.X, 0.0)
    tokens = jnp.linalg.norm(seen, ord=2, axis=(-2, -1))
    head = jnp.linalg.norm(problem.v)
    a = head * jnp.sum(problem.Z**2, axis=-1) * tokens**3
    return jnp.mean(a * (bend * head * tokens + 3 * slope))
