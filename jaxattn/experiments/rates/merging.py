"""Plain steps of which the shortest are taken together, where single ones would be too many."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxattn import checks
from jaxattn.descent.optimizers import length_of


class Lengths(NamedTuple):
    """The state of `merged`: the step size, and the length of the shortest step."""

    step_size: Float[Array, ""]
    shortest: Float[Array, ""]


class Merged(optax.GradientTransformationExtraArgs):
    """An optimizer that takes plain steps, or so many of them at once that W moves by `shortest`."""


def merged(step_size: float, shortest: float) -> Merged:
    """Return plain steps, those that move W by less than `shortest` taken together, as if the gradient stayed the same.

    Halving `shortest` shows what the merging changes.
    """
    lengths = (checks.positive("step_size", step_size), checks.positive("shortest", shortest))
    update: Any = _update
    return Merged(partial(_init, lengths), update)


def rate(state: Lengths, length: Float[Array, ""], plain: Float[Array, ""]) -> Float[Array, ""]:
    """Return the factor of a gradient of this length, of which plain steps have the factor `plain`."""
    return jnp.maximum(plain, state.shortest / jnp.where(length > 0, length, 1.0))


def _init(lengths: tuple[float, float], params: optax.Params) -> Lengths:
    dtype = jax.tree.leaves(params)[0].dtype
    return Lengths(*(jnp.asarray(length, dtype) for length in lengths))


def _update(updates: Any, state: Lengths, params: Any = None, **others: Any) -> tuple[Any, Lengths]:
    del params, others
    by = rate(state, length_of(updates, 0), state.step_size)
    return jax.tree.map(lambda gradient: -by * gradient, updates), state
