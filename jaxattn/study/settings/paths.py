"""A setting of regularization paths: what to draw, the balls to minimize the risk on, and the arrays recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from jaxattn import checks, data, heads, losses, regularization
from jaxattn.attention import Factored
from jaxattn.parallel import batch, effort
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys

# The axes of each array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "present": ("input", "token"),
    "data_key": ("key_word",),
    "W": ("radius", "feature", "query_feature"),
    "K": ("radius", "feature", "width"),
    "Q": ("radius", "query_feature", "width"),
    "steps": ("way", "radius"),
}
# The largest number of radii: each takes its Newton steps after the one before.
MOST = 10_000
_OF_PATH = ("risk", "excess", "residual", "solved", "falling", "apart", "steps")
# The number of seeds followed together, which all wait for the slowest.
_TOGETHER = 25
# The cost of a radius, in units of the solution of a max-margin problem with as many rows.
_STEPS = 5


@dataclass(frozen=True)
class Radii:
    """A number of radii at equal distances on a logarithmic axis, from the first to the last."""

    first: float
    last: float
    count: int

    def __post_init__(self) -> None:
        checks.count("radii.count", self.count, least=2)
        if self.count > MOST:
            raise ValueError(f"radii.count: expected at most {MOST:,}, found {self.count:,}")
        if not 0 < self.first < self.last < float("inf"):
            raise ValueError(f"radii: expected 0 < first < last, found first = {self.first}, last = {self.last}")

    def __call__(self) -> np.ndarray:
        """Return the radii."""
        return np.geomspace(self.first, self.last, self.count)


@dataclass(frozen=True)
class Regularization:
    """A setting: what to draw, the balls of W or of (K, Q) to minimize the risk on, how many seeds, and the key."""

    law: data.Law
    ball: regularization.Ball
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    radii: Radii

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        checks.count("seeds", self.seeds)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii, and the two directions in which they are followed."""
        return {"radius": self.radii(), "way": np.array([1, -1])}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS.get(name, ("radius",))

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        return _arrays(problem, data_key, self._path()(problem))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and follow their paths."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        width, steps = min(_TOGETHER, self.seeds), len(self.radii()) * _STEPS
        of_path = effort.solving(self.seeds, problems.n * (problems.T - 1), steps)
        return _arrays(problems, data_keys, batch.over_seeds(self._path(), problems, width=width, effort=of_path))

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose points are solved on every radius, and the others."""
        kept = sum(int(record.read("solved", part).all(axis=1).sum()) for part in record.blocks())
        return {"kept": kept, "unsolved": self.seeds - kept}

    def _path(self) -> Callable[[Problem], regularization.Path]:
        return _path_of(self.ball, self.loss, self.head, self.radii)


@lru_cache(maxsize=64)
def _path_of(
    ball: regularization.Ball, loss: losses.Loss, head: heads.Head, radii: Radii
) -> Callable[[Problem], regularization.Path]:
    """Return the path as a function of the problem; the same object per setting, so that it compiles once."""
    # Traced once, for the shapes of the record and for all seeds.
    return jax.jit(lambda problem: regularization.path(problem, radii(), ball, loss=loss, head=head))


def _arrays(problem: Problem, data_key: Any, path: regularization.Path) -> dict[str, Any]:
    weights = path.weights._asdict() if isinstance(path.weights, Factored) else {"W": path.weights}
    named = problem.arrays | {"data_key": data_key}
    return named | weights | {name: getattr(path, name) for name in _OF_PATH}
