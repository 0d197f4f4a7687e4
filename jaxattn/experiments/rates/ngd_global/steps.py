"""Descent on W followed in its logits: if W moves along its gradient, inner products of tokens suffice.

With `W_k = W_0 + sum_it c_it x_it z_i^T` the logits and the norm of W_k follow from c, (n, T), and from the inner
products of `x_it z_i^T`; no W is formed after the start, so the cost does not depend on d.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from jaxattn import attention, losses, metrics
from jaxattn.descent import gradients, stepping
from jaxattn.descent.optimizers import along
from jaxattn.experiments.rates.merging import Lengths, Merged
from jaxattn.experiments.rates.merging import rate as merged_rate
from jaxattn.experiments.rates.polyak import Polyak, log_excess
from jaxattn.problem import Problem

# Descent stops at this path length: beyond it squares of numbers overflow.
LONGEST = 1e70


class Begun(NamedTuple):
    """A start: its logits and norm, `<x_it, x_ju> <z_i, z_j>`, `<v, x_it>`, and labels."""

    logits: Float[Array, "n T"]
    size: Float[Array, ""]
    products: Float[Array, "n T n T"]
    worth: Float[Array, "n T"]
    Y: Float[Array, " n"]


class Followed(NamedTuple):
    """Logits, `||W||_F` and the length of the path so far at the snapshots; whether a step was too long to be taken."""

    logits: Float[Array, "k n T"]
    size: Float[Array, " k"]
    path: Float[Array, " k"]
    overflowed: Bool[Array, ""]


def begun(W: Float[Array, "d d"], problem: Problem) -> Begun:
    """Return a start of descent on a problem."""
    products = jnp.einsum("ntd,jud,nj->ntju", problem.X, problem.X, problem.Z @ problem.Z.T)
    return Begun(attention.logits(W, problem), metrics.norm(W), products, problem.X @ problem.v, problem.Y)


@lru_cache(maxsize=16)
def followed(optimizer: optax.GradientTransformation, steps: int, loss: losses.Loss) -> Any:
    """Return the function from a `Begun` and snapshots, increasing steps within 1..steps, to what was `Followed`.

    The gradient is computed in the log domain, so that no rule stalls by rounding. Equal arguments give one object, so
    that it compiles once. The optimizer is `descent.gd`, `descent.normalized_gd`, `merged` or `polyak`.

    Raises:
        ValueError: another optimizer.
    """
    return partial(_followed, optimizer=optimizer, rate=_rate(optimizer), steps=steps, loss=loss)


def _rate(optimizer: optax.GradientTransformation) -> Any:
    """Return the function from state, norm, size and log excess to the rate of the gradient divided by its size."""
    if isinstance(optimizer, Polyak):
        return _polyak_rate
    if isinstance(optimizer, Merged):
        return _merged_rate
    known = along(optimizer.update)
    if known is None:
        raise ValueError(
            "optimizer: expected one whose step depends on the gradient's length alone, such as gd, scale_free_gd or "
            f"polyak, found {optimizer!r}"
        )
    return lambda state, length, size, log_scale, excess: known.rate(state, length, size * jnp.exp(log_scale))


def _polyak_rate(state: Array, length: Array, size: Array, log_scale: Array, excess: Array) -> Array:
    # The factor exp(log_scale) is removed from both the risk and the gradient.
    del log_scale
    return state * jnp.exp(excess) / jnp.where(length > 0, size * length**2, 1.0)


def _merged_rate(state: Lengths, length: Array, size: Array, log_scale: Array, excess: Array) -> Array:
    del excess
    return merged_rate(state, length, state.step_size * size * jnp.exp(log_scale))


class _Now(NamedTuple):
    c: Array
    logits: Array
    path: Array
    overflowed: Array


def _followed(
    start: Begun, snapshots: Int[Array, " k"], *, optimizer: Any, rate: Any, steps: int, loss: losses.Loss
) -> Followed:
    state, scores = optimizer.init(start.logits), start.Y[:, None] * start.worth

    def read(step: Int[Array, ""], probabilities: Array) -> tuple[Array, Array]:
        del step
        return jnp.sum(probabilities * start.worth, axis=1), start.worth

    def moved(c: Array) -> Array:
        return jnp.einsum("ntju,ju->nt", start.products, c)

    def one_step(k: Array, now: _Now) -> _Now:
        slope = gradients.direction(k, now.logits, start.Y, read, loss)
        size = jnp.max(jnp.abs(slope.coefficients))
        unit = slope.coefficients / jnp.where(size > 0, size, 1.0)
        along_unit = moved(unit)
        length = jnp.sqrt(jnp.maximum(jnp.sum(unit * along_unit), 0.0))
        excess = log_excess(now.logits, scores, loss, slope.log_scale)
        by = rate(state, length, size, slope.log_scale, excess)
        short = now.path + by * length <= LONGEST
        taken = short & (size > 0)
        by = jnp.where(taken, by, 0.0)
        c, logits = now.c - by * unit, now.logits - by * along_unit
        return _Now(c, logits, now.path + by * length, now.overflowed | ((size > 0) & ~short))

    def kept(now: _Now) -> tuple[Array, Array, Array]:
        change = moved(now.c)
        square = start.size**2 + jnp.sum(now.c * (2 * start.logits + change))
        return start.logits + change, jnp.sqrt(jnp.maximum(square, 0.0)), now.path

    zero = jnp.zeros((), start.logits.dtype)
    begin = _Now(jnp.zeros_like(start.logits), start.logits, zero, jnp.zeros((), bool))
    now, (logits, size, path) = stepping.through(one_step, begin, snapshots, steps, kept)
    return Followed(logits, size, path, now.overflowed)
