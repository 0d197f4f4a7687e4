"""A setting without training: draw problems, and keys of weights at which to evaluate their risk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from jaxattn import checks, data
from jaxattn.parallel import batch
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys

# The axes of each array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "draw_keys": ("draw", "key_word"),
}


@dataclass(frozen=True)
class Landscape:
    """A setting: what to draw, how many problems, and the number of keys of weights for each; draw j depends only on j.

    The measurement draws the weights from their keys, some of them around a solution that it computes.
    """

    law: data.Law
    seeds: int
    key: int
    draws: int

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        for name in ("seeds", "draws"):
            checks.count(name, getattr(self, name))

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """No coordinates besides the seeds."""
        return {}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, draw_keys = _keys(seed, root, jnp.arange(self.draws))
        return from_words(self.law)(data_key).arrays | {"data_key": data_key, "draw_keys": draw_keys}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and the keys of their weights."""
        data_keys, draw_keys = batch.over_seeds(_keys, seeds, shared=(root, np.arange(self.draws)))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        return problems.arrays | {"data_key": data_keys, "draw_keys": draw_keys}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the drawn problems; all are kept, and the measurement finds which can be separated."""
        del record
        return {"kept": self.seeds}


def _keys(
    seed: Int[Array, ""], root: UInt32[Array, " words"], draws: Int[Array, " draws"]
) -> tuple[UInt32[Array, " words"], UInt32[Array, "draws words"]]:
    data_key, own = keys(seed, root)
    of_draw = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.wrap_key_data(own), draws)
    return data_key, jax.random.key_data(of_draw)
