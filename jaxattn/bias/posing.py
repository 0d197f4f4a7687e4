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


def posed(
    run: descent.Run, problems: Problem, model: models.Model, finite: Bool[np.ndarray, " seeds"]
) -> tuple[descent.Run, Problem]:
    """Return a batch of runs as runs of one matrix W, with the problems whose logits are `X_i W z_i`.

    A model with the functions `seen(problem)` and `matrix(params)`, like those of `models`, provides both. For another
    model, keys and queries are read from the derivative of its logits with respect to W: the parameter that its
    `matrix(params)` returns, with the others at their values at the last snapshot, or all of its parameters. A token
    whose probability is 0 at W = 0 is hidden from its input. Heads whose logits do not depend on W are
    excluded. Seeds whose weights are not `finite` get any problem, and are to be excluded.

    Raises:
        ValueError: for a model without `seen`: its `matrix` returns none of the parameters, its W is neither a matrix
            (d, d) nor Factored(K, Q), or its logits do not depend on W, are not linear in it, or not of the form
            `k_t^T W q`.

    Example:
        >>> from jaxattn.bias.posing import posed
        >>> runs = descent.train_batch(jnp.ones((1, 5, 5)), jax.tree.map(lambda leaf: leaf[None], problem), steps=2)
        >>> one = jax.tree.map(lambda leaf: leaf[None], problem)
        >>> seen = posed(runs, one, models.rotary(), np.array([True]))[1]
    """
    if model == models.plain:
        return run, problems
    weights, snapshots = models.parts(run.weights).attention, models.parts(run.snapshots).attention
    # Models may hold arrays, which rules compare by content.
    key = descent.Rule(descent.gd(1.0), model=model)
    # No part of the protocol.
    matrix: Callable[[Any], Any] | None = getattr(model, "matrix", None)
    if hasattr(model, "seen") and matrix is not None:
        W, along = np.asarray(matrix(weights)), np.asarray(matrix(snapshots))
        return run._replace(weights=W, snapshots=along, rule=None), batch.over_seeds(_seen(key), problems)
    at = _place(weights, matrix)
    W, along = _matrix(weights, at), _matrix(snapshots, at)
    # Logits at weights that are not finite would be no example of the model's.
    lanes = np.where(finite, np.arange(finite.size), np.argmax(finite))
    last = jax.tree.map(lambda leaf: np.asarray(leaf)[lanes, -1], snapshots)
    slopes, hidden, apart = batch.over_seeds(_linear(key, at), last, problems)
    n = problems.Y.shape[1]
    # Of several heads, those with another W ask nothing of this one.
    reads = np.repeat(slopes.reshape(len(slopes), slopes.shape[1] // n, -1).any(axis=(0, 2)), n)
    if reads.any():
        slopes, hidden = slopes[:, reads], hidden[:, reads]
    keys, queries = _factored(slopes, hidden, apart)
    if not reads.any():
        raise ValueError("model: expected logits that depend on W, found none")
    # A learned scale may be far from 1. W carries it, so that keys have the usual size; powers of 2 round nothing.
    size = np.abs(keys).max(axis=(1, 2, 3), keepdims=True)
    scale = np.exp2(np.round(np.log2(np.where(size > 0, size, 1))))
    keys, W, along = keys / scale, W * scale[..., 0], along * scale
    # Each head of each input is treated as an input of its own.
    count = keys.shape[1] // n
    tiled = {name: np.concatenate([leaf] * count, axis=1) for name, leaf in problems.arrays.items() if name != "v"}
    if hidden.any():
        tiled["present"] = tiled.get("present", True) & ~hidden
    arrays = tiled | {"X": keys, "Z": queries, "v": problems.v}
    return run._replace(weights=W, snapshots=along, rule=None), of_arrays(arrays)


@lru_cache(maxsize=64)
def _seen(key: descent.Rule) -> Callable[[Problem], Problem]:
    # The same function object for a model each time, so that it compiles once.
    model: Any = key.model
    return model.seen


def _flat(params: Any) -> tuple[list[Any], Any]:
    return jax.tree.flatten(params, is_leaf=lambda one: isinstance(one, attention.Factored))


def _place(params: Any, matrix: Callable[[Any], Any] | None) -> int:
    """Return which of the parameters, with Factored(K, Q) as one, is W; the only one if `matrix` is None."""
    flat, _ = _flat(params)
    W = params if matrix is None else matrix(params)
    places = [k for k, leaf in enumerate(flat) if leaf is W]
    if len(places) != 1 or not (isinstance(W, attention.Factored) or (np.ndim(W) > 2 and W.shape[-1] == W.shape[-2])):
        shapes = jax.tree.map(np.shape, params)
        if matrix is None:
            raise ValueError(
                "model: expected one whose parameters are W, (d, d), or Factored(K, Q), found parameters of shapes "
                f"{shapes}; models.Logits(function, matrix=lambda params: params[0]) says which of them is W"
            )
        raise ValueError(
            "model: expected a function matrix(params) that returns one of the parameters unchanged, W, (d, d), or "
            f"Factored(K, Q), found {jax.tree.map(np.shape, W)} from parameters of shapes {shapes}"
        )
    return places[0]


def _matrix(params: Any, at: int) -> Float[np.ndarray, "*batch d d"]:
    return np.asarray(attention.matrix(_flat(params)[0][at]))


@lru_cache(maxsize=64)
def _linear(key: descent.Rule, at: int) -> Callable[..., Any]:
    return partial(_linearized, key.model, at)


def _linearized(
    model: models.Model, at: int, params: Any, problem: Problem
) -> tuple[Float[Array, "rows T d d"], Bool[Array, "rows T"], Float[Array, ""]]:
    """Return the logits' derivative in W, the parameter at this place, which tokens are hidden, and the linear error.

    That is how far the other logits are from linear ones, relative to the largest.
    """
    flat, structure = _flat(params)
    W = attention.matrix(flat[at])

    def logits(W: Array) -> Array:
        given = jax.tree.unflatten(structure, [*flat[:at], W, *flat[at + 1 :]])
        return model.logits(given, problem).reshape(-1, problem.T)

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
