"""Which token an input selects, and which one its label would have it select."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxattn import attention, heads
from jaxattn.problem import Problem


def scores(problem: Problem, head: heads.Head = heads.linear) -> Float[Array, "n T"]:
    """Return the token scores `gamma_it = Y_i h(x_it)`, (n, T) (2308.16898, definition 1).

    The score of a token that attention cannot see is -inf.

    Raises:
        ValueError: a head of `heads` that does not fit the problem's v.
    """
    per_token = jax.vmap(jax.vmap(head, in_axes=(0, None)), in_axes=(0, None))
    return attention.masked(problem.Y[:, None] * per_token(problem.X, problem.v), problem)


def optimal(problem: Problem, head: heads.Head = heads.linear) -> Int[Array, " n"]:
    """Return the token of highest score of every input, (n,) (2308.16898, definition 1)."""
    return jnp.argmax(scores(problem, head), axis=-1)


def selected(weights: attention.Weights, problem: Problem) -> Int[Array, " n"]:
    """Return the token that the attention of every input is largest on, (n,).

    Read from the logits: saturated probabilities tie in floating point, logits do not.

    Raises:
        ValueError: weights that do not fit the problem.
    """
    return jnp.argmax(attention.logits(weights, problem), axis=-1)
