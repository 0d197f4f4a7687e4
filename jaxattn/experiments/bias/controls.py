"""Controls: models that change each key at random, where positions change all keys of one place alike; a head alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxattn import initial
from jaxattn.data import draws
from jaxattn.models import TransformedInputs
from jaxattn.models.positions import rotated
from jaxattn.problem import Problem

# From a random key and keys to changed keys.
_Change = Callable[[PRNGKeyArray, Array], Array]


@dataclass(frozen=True)
class _Changed:
    change: _Change
    key: int

    def __call__(self, problem: Problem) -> Problem:
        # The head direction, which is random and never trained, gives each seed its own change.
        words = jax.lax.bitcast_convert_type(problem.v.ravel()[0], jnp.uint32).ravel()
        key = jax.random.fold_in(jax.random.key(self.key), words[0])
        return Problem(**problem.arrays | {"X": self.change(key, problem.X)})


def shifted(key: int) -> TransformedInputs:
    """Return the model with keys `x_it + u_it`, each u_it drawn uniformly from the unit sphere.

    Example:
        >>> model = shifted(key=7)
    """
    return TransformedInputs(_Changed(_shift, key))


def turned(key: int) -> TransformedInputs:
    """Return the model whose keys are turned in the planes of `models.rotary`, each by its own uniform angles.

    Example:
        >>> model = turned(key=7)
    """
    return TransformedInputs(_Changed(_turn, key))


def _shift(key: PRNGKeyArray, X: Float[Array, "n T d"]) -> Float[Array, "n T d"]:
    return X + draws.unit(jax.random.normal(key, X.shape, X.dtype))


def _turn(key: PRNGKeyArray, X: Float[Array, "n T d"]) -> Float[Array, "n T d"]:
    return rotated(X, jax.random.uniform(key, (*X.shape[:-1], X.shape[-1] // 2), X.dtype, maxval=2 * np.pi))


def first_of_two(key: PRNGKeyArray, d: int) -> Any:
    """Draw the weights with which the first of two heads starts (`initial.several`)."""
    return initial.several(key, d, count=2)[0]
