"""Two layers of attention, the gradient of their risk in the log domain, and descent on both together.

The first layer is self-attention at every position, added to the token: `x'_t = x_t + X^T softmax(X W_1 x_t)`. The
second attends to its outputs, `f = v . X'^T softmax(X' W_2 z)`. With s the second layer's probabilities, the gradient
in its logits is `s_t r_t`, `r_t = v . x'_t - f`; that in the output x'_t of the first is `s_t h_t`, `h_t = v + r_t W_2
z`. So the first layer's gradient at position t has the factor s_t: once the second layer has converged, only the
positions that it reads are trained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from jaxattn import losses
from jaxattn.problem import Problem

__all__ = ["Layers", "attended", "directions", "log_unread", "predictions", "trained"]


class Layers(NamedTuple):
    """The weights of both layers, or gradients with respect to them, (d, d) each."""

    first: Float[Array, "*batch d d"]
    second: Float[Array, "*batch d d"]


def attended(first: Float[Array, "d d"], problem: Problem) -> Float[Array, "n T d"]:
    """Return the input of the second layer, `x_t + X^T softmax(X W_1 x_t)` at every position."""
    return problem.X + jnp.einsum("nts,nsd->ntd", jax.nn.softmax(_first_logits(first, problem), axis=-1), problem.X)


def predictions(weights: Layers, problem: Problem) -> Float[Array, " n"]:
    """Return `v . X'^T softmax(X' W_2 z)` for every input."""
    outputs = attended(weights.first, problem)
    return jnp.einsum("nt,ntd,d->n", jax.nn.softmax(_logits(outputs, weights, problem), axis=1), outputs, problem.v)


def directions(weights: Layers, problem: Problem) -> Layers:
    """Return the gradients of the logistic risk, each divided by its own positive number, so that they never underflow.

    All differences are relative to the token of the largest logit, so that there is no cancellation, however saturated
    the softmax is.
    """
    outputs = attended(weights.first, problem)
    log_s, top, rises = _second(weights, outputs, problem)
    logs, tops, of_rows = _first(weights, log_s, rises, problem)
    slopes = _slopes(weights, problem)

    of_tokens = _scaled(log_s, rises, top) * slopes[:, None]
    apart = outputs - jnp.take_along_axis(outputs, top[:, None, None], axis=1)
    second = jnp.einsum("nt,ntd,ne->de", of_tokens, apart, problem.Z)

    of_pairs = _scaled(logs, of_rows, tops) * slopes[:, None, None]
    chosen = jnp.take_along_axis(problem.X, tops[:, :, None], axis=1)
    away = problem.X[:, None, :, :] - chosen[:, :, None, :]
    return Layers(jnp.einsum("nts,ntsd,nte->de", of_pairs, away, problem.X), second)


def log_unread(weights: Layers, problem: Problem) -> Float[Array, ""]:
    """Return the decimal logarithm of the share of unread positions in the first layer's gradient.

    The read position is the one with the second layer's largest logit. Shares are of the absolute values of the
    gradient in the first layer's logits, summed over all tokens except the selected ones.
    """
    outputs = attended(weights.first, problem)
    log_s, top, rises = _second(weights, outputs, problem)
    logs, tops, of_rows = _first(weights, log_s, rises, problem)
    logs = logs + jnp.log(jnp.abs(of_rows)) + jnp.log(jnp.abs(_slopes(weights, problem)))[:, None, None]
    sizes = jnp.where(_is(tops, problem.T), -jnp.inf, logs)
    is_read = _is(top, problem.T)[:, :, None]
    unread = jax.scipy.special.logsumexp(jnp.where(is_read, -jnp.inf, sizes))
    return (unread - jax.scipy.special.logsumexp(sizes)) / jnp.log(10.0)


def trained(
    start: Layers, problem: Problem, optimizer: optax.GradientTransformation, snapshots: tuple[int, ...]
) -> Layers:
    """Return both layers after these numbers of updates, (snapshots, d, d) each.

    The optimizer moves each by the direction of its own gradient, whatever its scale and previous gradients.
    """

    def step(_: Int[Array, ""], kept: tuple[Layers, Any]) -> tuple[Layers, Any]:
        weights, states = kept
        slopes = directions(weights, problem)
        moved: list[Any] = [optimizer.update(*one) for one in zip(slopes, states, weights, strict=True)]
        ahead = Layers(*(W + move for W, (move, _) in zip(weights, moved, strict=True)))
        return ahead, tuple(state for _, state in moved)

    def stretch(kept: tuple[Layers, Any], steps: Int[Array, ""]) -> tuple[tuple[Layers, Any], Layers]:
        kept = jax.lax.fori_loop(0, steps, step, kept)
        return kept, kept[0]

    states = tuple(map(optimizer.init, start))
    return jax.lax.scan(stretch, (start, states), jnp.diff(jnp.asarray((0, *snapshots))))[1]


def _slopes(weights: Layers, problem: Problem) -> Float[Array, " n"]:
    """Return the derivative of every input's loss in its prediction."""
    return problem.Y * jax.vmap(jax.grad(losses.logistic))(problem.Y * predictions(weights, problem))


def _second(
    weights: Layers, outputs: Float[Array, "n T d"], problem: Problem
) -> tuple[Float[Array, "n T"], Int[Array, " n"], Float[Array, "n T"]]:
    """Return the second layer's log-probabilities, the position of the largest, and r as in the module's docstring."""
    logits = _logits(outputs, weights, problem)
    top, rises = _rises(logits, outputs @ problem.v)
    return jax.nn.log_softmax(logits, axis=1), top, rises


def _first(
    weights: Layers, log_s: Float[Array, "n T"], rises: Float[Array, "n T"], problem: Problem
) -> tuple[Float[Array, "n T T"], Int[Array, "n T"], Float[Array, "n T T"]]:
    """Return for the first layer's logits the log factors of the gradient, the top tokens, and their multiplicands."""
    logits = _first_logits(weights.first, problem)
    heard = problem.v[None, None] + rises[:, :, None] * (problem.Z @ weights.second.T)[:, None, :]
    tops, of_rows = _rises(logits, jnp.einsum("nsd,ntd->nts", problem.X, heard))
    return log_s[:, :, None] + jax.nn.log_softmax(logits, axis=-1), tops, of_rows


def _first_logits(first: Float[Array, "d d"], problem: Problem) -> Float[Array, "n T T"]:
    """Return `x_s^T W_1 x_t` for every position t and token s, (input, t, s)."""
    return jnp.einsum("nsd,de,nte->nts", problem.X, first, problem.X)


def _logits(outputs: Float[Array, "n T d"], weights: Layers, problem: Problem) -> Float[Array, "n T"]:
    return jnp.einsum("ntd,de,ne->nt", outputs, weights.second, problem.Z)


def _rises(
    logits: Float[Array, "*rows T"], worth: Float[Array, "*rows T"]
) -> tuple[Int[Array, " *rows"], Float[Array, "*rows T"]]:
    """Return the token of the largest logit, and the worth of every token minus that of the attended one."""
    top = jnp.argmax(logits, axis=-1)
    apart = worth - jnp.take_along_axis(worth, top[..., None], axis=-1)
    return top, apart - jnp.sum(jax.nn.softmax(logits, axis=-1) * apart, axis=-1, keepdims=True)


def _scaled(
    logs: Float[Array, "*rows T"], rises: Float[Array, "*rows T"], top: Int[Array, " *rows"]
) -> Float[Array, "*rows T"]:
    """Return `exp(logs) * rises` for all but the top tokens, over the largest factor; 0 for the top tokens."""
    is_top = _is(top, logs.shape[-1])
    return jnp.where(is_top, 0.0, jnp.exp(logs - jnp.max(jnp.where(is_top, -jnp.inf, logs))) * rises)


def _is(place: Int[Array, " *rows"], T: int) -> Bool[Array, "*rows T"]:
    return jax.nn.one_hot(place, T, dtype=bool)
