"""Laws of the tokens to select: pure functions of a random key and a problem."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from jaxattn import attention, tokens
from jaxattn.problem import Problem

__all__ = ["TokenLaw", "optimal_tokens", "uniform_tokens"]

TokenLaw = Callable[[PRNGKeyArray, Problem], Int[Array, " n"]]


def optimal_tokens(key: PRNGKeyArray, problem: Problem) -> Int[Array, " n"]:
    """Select the token with the highest score in each input, (n,). The key is not used.

    Example:
        >>> data.optimal_tokens(key, problem).tolist() == tokens.optimal(problem).tolist()
        True
    """
    del key
    return tokens.optimal(problem)


def uniform_tokens(key: PRNGKeyArray, problem: Problem) -> Int[Array, " n"]:
    """Select a token of each input uniformly among those that it sees, (n,).

    Example:
        >>> data.uniform_tokens(key, problem).shape
        (3,)
    """
    if problem.present is not None:
        alike = jnp.zeros(problem.present.shape, problem.X.dtype)
        return jax.random.categorical(key, attention.masked(alike, problem), axis=-1)
    return jax.random.randint(key, (problem.n,), 0, problem.T)
