"""Attention with key and query matrices that are kept diagonal during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxattn import attention, heads, models
from jaxattn.attention import Factored
from jaxattn.problem import Problem


@dataclass(frozen=True)
class Diagonal:
    """One head with `W = diag(k q)`: K and Q hold the diagonals k and q, (d, 1) each.

    Its logits `sum_j x_itj k_j q_j z_ij` are linear in the diagonal k q. The diagonal is represented as the first
    column of a matrix, with keys `x_it z_i` (entrywise product) and the first axis as every query. The nuclear norm of
    W is the l1 norm of this column.
    """

    def logits(self, weights: Factored, problem: Problem) -> Float[Array, "1 n T"]:
        """Return the logits of the head."""
        keys = problem.X * problem.Z[:, None, :]
        return attention.masked(keys @ (weights.K * weights.Q)[:, 0], problem)[None]

    def predictions(
        self, readout: Any, probabilities: Float[Array, "1 n T"], problem: Problem, head: heads.Head
    ) -> Float[Array, " n"]:
        """Return the head's predictions from the attention output."""
        return models.plain.predictions(readout, probabilities, problem, head)

    def seen(self, problem: Problem) -> Problem:
        """Return the problem over the entrywise products of tokens and queries."""
        first = jnp.zeros_like(problem.Z).at[:, 0].set(1.0)
        keys = problem.X * problem.Z[:, None, :]
        return Problem(X=keys, Z=first, Y=problem.Y, v=problem.v, present=problem.present)

    def matrix(self, weights: Factored) -> Float[Array, "*batch d d"]:
        """Return the diagonal as the first column of a matrix."""
        column = jnp.asarray(weights.K) * jnp.asarray(weights.Q)
        rest = jnp.zeros((*column.shape[:-1], column.shape[-2] - 1), column.dtype)
        return jnp.concatenate([column, rest], axis=-1)
