"""The max-margin problem of any model with linear logits, from its keys and queries and one matrix W."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxattn import attention, descent, models
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays

__all__ = ["posed"]

# Tolerance for rounding in double precision: of the difference between logits and their linear part, and of the second
# singular value of rows that share a query, each relative to the largest.
_ROUNDING = 1e-8


def posed(run: descent.Run, problems: Problem, model: models.Model) -> tuple[descent.Run, Problem]:
    """Return a batch of runs as runs of one matrix W, with the problems whose logits are `X_i W z_i`.

    A model with the functions `seen(problem)` and `matrix(weights)`, like those of `models`, provides both. For a model
    of one function they are read from the derivative of its logits. A token whose probability is 0 at W = 0, because
    its logit is -inf or so, is hidden from its input.

    Args:
        run: the result of `descent.train_batch`.
        problems: the problems it was trained on.
        model: the model that was trained.

    Raises:
        ValueError: for a model of one function: its parameters are neither a matrix (d, d) nor Factored(K, Q), or its
            logits are not linear in W, or not of the form `k_t^T W q`.

    Example:
        >>> from jaxattn.bias.posing import posed
        >>> runs = descent.train_batch(jnp.ones((1, 5, 5)), jax.tree.map(lambda leaf: leaf[None], problem), steps=2)
        >>> seen = posed(runs, jax.tree.map(lambda leaf: leaf[None], problem), models.rotary())[1]
    """
    if model == models.plain:
        return run, problems
    weights, snapshots = models.parts(run.weights).attention, models.parts(run.snapshots).attention
    if hasattr(model, "seen") and hasattr(model, "matrix"):
        matrix: Callable[[Any], Any] = getattr(model, "matrix")  # noqa: B009 - no part of the protocol
        seen = batch.over_seeds(_seen(model), problems)
        return run._replace(
            weights=np.asarray(matrix(weights)), snapshots=np.asarray(matrix(snapshots)), rule=None
        ), seen
    W, snapshots = _matrix(weights), _matrix(snapshots)
    slopes, hidden, apart = batch.over_seeds(_linear(model), W, problems)
    keys, queries = _factored(slopes, hidden, apart)
    # Each head of each input is treated as an input of its own.
    count = keys.shape[1] // problems.Y.shape[1]
    tiled = {name: np.concatenate([leaf] * count, axis=1) for name, leaf in problems.arrays.items() if name != "v"}
    if hidden.any():
        tiled["present"] = tiled.get("present", True) & ~hidden
    return run._replace(weights=W, snapshots=snapshots, rule=None), of_arrays(
        tiled | {"X": keys, "Z": queries, "v": problems.v}
    )


@lru_cache(maxsize=64)
def _seen(model: Any) -> Callable[[Problem], Problem]:
    # The same function object for a model each time, so that it compiles once.
    return model.seen


def _matrix(weights: Any) -> Float[np.ndarray, "*batch d d"]:
    is_one = isinstance(weights, attention.Factored) or (
        hasattr(weights, "shape") and weights.ndim > 2 and weights.shape[-1] == weights.shape[-2]
    )
    if not is_one:
        raise ValueError(
            "model: expected one whose parameters are W, (d, d), or Factored(K, Q), or one with the functions "
            f"seen(problem) and matrix(weights), found parameters {jax.tree.map(np.shape, weights)}"
        )
    return np.asarray(attention.matrix(weights))


@lru_cache(maxsize=64)
def _linear(model: models.Model) -> Callable[..., Any]:
    return partial(_linearized, model)


def _linearized(
    model: models.Model, W: Float[Array, "d d"], problem: Problem
) -> tuple[Float[Array, "rows T d d"], Bool[Array, "rows T"], Float[Array, ""]]:
    """Return the logits' derivative, which tokens are hidden, and the distance of the other logits from linear ones.

    The distance is relative to the largest logit.
    """

    def logits(W: Array) -> Array:
        return model.logits(W, problem).reshape(-1, problem.T)

    at_zero = logits(jnp.zeros_like(W))
    hidden = jax.nn.softmax(at_zero, axis=-1) == 0

    def seen(W: Array) -> Array:
        return jnp.where(hidden, 0, logits(W))

    slopes = jax.jacrev(seen)(jnp.zeros_like(W))
    # Compare with the larger one: logits that do not grow with W may be much smaller than their linear part.
    at_W, at_zero = seen(W), jnp.where(hidden, 0, at_zero)
    linear = jnp.einsum("rtde,de->rt", slopes, W) + at_zero
    apart = jnp.max(jnp.abs(at_W - linear)) / jnp.maximum(jnp.max(jnp.abs(at_W)), jnp.max(jnp.abs(linear)))
    return slopes, hidden, apart


def _factored(
    slopes: Float[np.ndarray, "seeds rows T d d"],
    hidden: Bool[np.ndarray, "seeds rows T"],
    apart: Float[np.ndarray, " seeds"],
) -> tuple[Float[np.ndarray, "seeds rows T d"], Float[np.ndarray, "seeds rows d"]]:
    """Return keys and queries whose products are these slopes, with the first key that each input sees at 0."""
    if not np.isfinite(slopes).all() or not (apart <= _ROUNDING).all():
        raise ValueError(
            "model: expected logits that are linear in W (up to a constant), found some that differ from their linear "
            f"part by {np.nanmax(apart):.2g} of the largest; no max-margin problem in W is theirs"
        )
    seeds, rows, T, d, _ = slopes.shape
    first = np.take_along_axis(slopes, np.argmin(hidden, axis=2)[:, :, None, None, None], axis=2)
    of_rows = np.where(hidden[..., None, None], 0, slopes - first).reshape(seeds, rows, T * d, d)
    _, sizes, Vt = np.linalg.svd(of_rows, full_matrices=False)
    if (sizes[..., 1:2] > _ROUNDING * sizes[..., :1]).any():
        raise ValueError(
            "model: expected logits of the form k_t^T W q, one query q for all tokens of an input, found an input "
            f"whose rows have rank {int((sizes > _ROUNDING * sizes[..., :1]).sum(axis=-1).max())}"
        )
    queries = Vt[:, :, 0]
    keys = np.einsum("srkd,srd->srk", of_rows, queries).reshape(seeds, rows, T, d)
    return keys, queries
