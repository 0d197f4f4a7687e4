"""Selected and optimal tokens of each input, their support neighbours, and local and global optimality."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxattn import attention, checks, heads
from jaxattn.problem import Problem, check_one

__all__ = [
    "ACTIVE",
    "SATURATED",
    "Outcome",
    "all_support",
    "is_globally_optimal",
    "is_locally_optimal",
    "optimal",
    "outcome",
    "saturation",
    "scores",
    "selected",
    "support_neighbours",
]

# Attention has selected its tokens once the largest probability of each input is at least this.
SATURATED = 0.99
# How far from 1 the margin of an active constraint may be. A certified Frobenius solution is accurate to about 1e-12,
# and in random problems inactive constraints almost never have a margin this close to 1.
ACTIVE = 1e-6


def scores(problem: Problem, head: heads.Head = heads.linear) -> Float[Array, "n T"]:
    """Return the token scores `gamma_it = Y_i h(x_it)`, (n, T) (2308.16898, definition 1).

    The score of a token that attention cannot see is -inf.

    Raises:
        ValueError: the head is not a function to one number, or does not fit the problem's v.

    Example:
        >>> tokens.scores(problem).shape  # Y_i v.x_it
        (3, 4)
    """
    check_one(problem)
    checks.function("head", head, ("x", "v"))
    per_token = jax.vmap(partial(heads.of_each, head), in_axes=(0, None))
    return attention.masked(problem.Y[:, None] * per_token(problem.X, problem.v), problem)


def optimal(problem: Problem, head: heads.Head = heads.linear) -> Int[Array, " n"]:
    """Return the token with the highest score in each input, (n,) (2308.16898, definition 1).

    Example:
        >>> tokens.optimal(problem).shape
        (3,)
    """
    return jnp.argmax(scores(problem, head), axis=-1)


def selected(weights: attention.Weights, problem: Problem) -> Int[Array, " n"]:
    """Return the token with the largest attention in each input, (n,).

    It is read from the logits, because saturated probabilities tie in floating point.

    Raises:
        ValueError: weights that do not fit the problem.

    Example:
        >>> tokens.selected(run.weights, problem).shape
        (3,)
    """
    return jnp.argmax(attention.logits(weights, problem), axis=-1)


def support_neighbours(
    margins: Float[Array, "n m"], alpha: Int[Array, " n"], tolerance: float = ACTIVE
) -> Bool[Array, "n T"]:
    """Return which tokens are support neighbours of the selected ones, (n, T) (2308.16898, definition 2).

    Token t of input i is a support neighbour if its constraint is active, `(x_i,alpha_i - x_it)^T W_svm z_i = 1`;
    alpha_i itself is not. Margins are compared rather than multipliers: a constraint may be active with a zero
    multiplier, and its token is still a neighbour. A token that its input cannot see has margin 0 and is not a
    neighbour.

    Args:
        margins: the margins at a certified Att-SVM solution, (n, T - 1), over the other tokens in increasing order, as
            `svm.margins` returns them for `svm.token_constraints`.
        alpha: the selected tokens, (n,).
        tolerance: how far from 1 the margin of an active constraint may be.

    Example:
        >>> margins = svm.margins(constraints, solution.W)
        >>> tokens.support_neighbours(margins, alpha).shape
        (3, 4)
    """
    t = jnp.arange(margins.shape[1] + 1)[None, :]
    of_alpha = alpha[:, None]
    column = jnp.clip(t - (t > of_alpha), 0, margins.shape[1] - 1)
    active = jnp.take_along_axis(jnp.abs(margins - 1) <= tolerance, column, axis=1)
    return active & (t != of_alpha)


def is_globally_optimal(scores: Float[Array, "n T"], alpha: Int[Array, " n"]) -> Bool[Array, ""]:
    """Return whether the token alpha_i of each input has the highest score (2308.16898, definition 1).

    Example:
        >>> bool(tokens.is_globally_optimal(tokens.scores(problem), tokens.optimal(problem)))
        True
    """
    return jnp.all(_of(alpha, scores)[:, 0] >= jnp.max(scores, axis=1))


def is_locally_optimal(
    scores: Float[Array, "n T"], alpha: Int[Array, " n"], neighbours: Bool[Array, "n T"]
) -> Bool[Array, ""]:
    """Return whether the token alpha_i of each input outscores its support neighbours (2308.16898, definition 2).

    Example:
        >>> neighbours = tokens.support_neighbours(svm.margins(constraints, solution.W), alpha)
        >>> answer = tokens.is_locally_optimal(tokens.scores(problem), alpha, neighbours)
    """
    return jnp.all((_of(alpha, scores) > scores) | ~neighbours)


def all_support(neighbours: Bool[Array, "n T"]) -> Bool[Array, ""]:
    """Return whether all tokens that are not selected are support neighbours.

    2308.16898 assumes this of its support vectors; then only the optimal tokens are locally optimal.

    Example:
        >>> neighbours = tokens.support_neighbours(svm.margins(constraints, solution.W), alpha)
        >>> answer = tokens.all_support(neighbours)
    """
    return jnp.all(jnp.sum(neighbours, axis=1) == neighbours.shape[1] - 1)


def saturation(weights: attention.Weights, problem: Problem) -> Float[Array, ""]:
    """Return the smallest, over inputs, of the largest attention probability, ().

    Example:
        >>> bool(0.25 <= tokens.saturation(run.weights, problem) <= 1)
        True
    """
    return jnp.min(jnp.max(attention.probabilities(weights, problem), axis=1))


class Outcome(NamedTuple):
    """The selection of a trained model. Globally optimal tokens are locally optimal unless scores tie.

    Attributes:
        saturated: each input gives one token a probability of at least `SATURATED`. If not, no token is selected yet,
            and the other fields describe the currently likeliest tokens.
        globally: the selected tokens are the optimal ones.
        locally: they outscore their support neighbours.
        all_support: all other tokens are support neighbours.
    """

    saturated: Bool[Array, "*batch"]
    globally: Bool[Array, "*batch"]
    locally: Bool[Array, "*batch"]
    all_support: Bool[Array, "*batch"]


def outcome(
    weights: attention.Weights, problem: Problem, margins: Float[Array, "n m"], head: heads.Head = heads.linear
) -> Outcome:
    """Classify the tokens that trained weights select.

    Args:
        weights: the trained weights.
        problem: the problem they were trained on.
        margins: the margins at the certified Frobenius Att-SVM solution for `selected(weights, problem)`, as in
            `support_neighbours`.
        head: the head that gives the scores.

    Raises:
        ValueError: weights that do not fit the problem.

    Example:
        >>> found = tokens.outcome(run.weights, problem, svm.margins(constraints, solution.W))
    """
    alpha, gamma = selected(weights, problem), scores(problem, head)
    neighbours = support_neighbours(margins, alpha)
    return Outcome(
        saturated=saturation(weights, problem) >= SATURATED,
        globally=is_globally_optimal(gamma, alpha),
        locally=is_locally_optimal(gamma, alpha, neighbours),
        all_support=all_support(neighbours),
    )


def _of(alpha: Int[Array, " n"], scores: Float[Array, "n T"]) -> Float[Array, "n 1"]:
    return jnp.take_along_axis(scores, alpha[:, None], axis=1)
