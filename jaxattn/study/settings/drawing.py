"""A setting without training: draw problems in several dimensions, and the token that each input is to select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int, UInt32

from jaxattn import checks, data
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys

# The axes of each array of a record, after those of seeds and dimensions.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "alpha": ("input",),
    "data_key": ("key_word",),
    "tokens_key": ("key_word",),
}


@dataclass(frozen=True)
class Drawing:
    """A setting: how many problems to draw in each of a law's dimensions, and which tokens to select."""

    law: data.Spheres
    tokens: data.TokenLaw
    seeds: int
    key: int

    def __post_init__(self) -> None:
        if not isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of several dimensions such as spheres, found {self.law!r}")
        checks.count("seeds", self.seeds)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The dimensions."""
        return {"d": np.asarray(self.law.d)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return ("d", *_DIMS[name])

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""

        def of_dimension(d: Any) -> dict[str, Any]:
            data_key, tokens_key = _keys(seed, d, root)
            problem = from_words(self.law)(data_key, d)
            return _arrays(problem, from_words(self.tokens)(tokens_key, problem), data_key, tokens_key)

        return jax.vmap(of_dimension)(np.asarray(self.law.d))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds and the tokens to select, one lane per seed and dimension."""
        seed, d = (axis.ravel() for axis in np.meshgrid(seeds, np.asarray(self.law.d), indexing="ij"))
        data_keys, tokens_keys = batch.over_seeds(_keys, seed, d, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys, d)
        alpha = batch.over_seeds(from_words(self.tokens), tokens_keys, problems)
        lanes = _arrays(problems, alpha, data_keys, tokens_keys)
        return {name: array.reshape(len(seeds), -1, *array.shape[1:]) for name, array in lanes.items()}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the drawn problems; all are kept, and the measurement finds which can be separated."""
        del record
        return {"kept": self.seeds}


def _keys(
    seed: Int[Array, ""], d: Int[Array, ""], root: UInt32[Array, " words"]
) -> tuple[UInt32[Array, " words"], ...]:
    of_seed = (jax.random.wrap_key_data(words) for words in keys(seed, root))
    return tuple(jax.random.key_data(jax.random.fold_in(key, d)) for key in of_seed)


def _arrays(problem: Problem, alpha: Any, data_key: Any, tokens_key: Any) -> dict[str, Any]:
    named = {name: getattr(problem, name) for name in ("X", "Z", "Y", "v")}
    return named | {"alpha": alpha, "data_key": data_key, "tokens_key": tokens_key}
