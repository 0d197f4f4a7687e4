"""Follow the regularization path of factors with few columns, and descend on factors of the same width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import optax

from jaxattn import checks, data, descent, heads, initial, losses, regularization
from jaxattn.attention import Factored
from jaxattn.parallel import batch, effort
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.paths import Radii
from jaxattn.study.settings.recording import from_words, keys

# The axes of every array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "K": ("feature", "width"),
    "Q": ("query_feature", "width"),
    "K_path": ("radius", "feature", "width"),
    "Q_path": ("radius", "query_feature", "width"),
}
_OF_PATH = ("risk", "excess", "residual", "solved", "minimum", "agreeing", "continued")
# Seeds whose paths are followed together wait for the slowest one.
_TOGETHER = 16
# The cost of a radius, in solutions of a max-margin problem of the same size: ten starts, two ways, and many small
# systems.
_STEPS = 500


@dataclass(frozen=True)
class NarrowPaths:
    """One setting: problems, and for each its path and one descent on factors with the same number of columns.

    Attributes:
        law: of the problems.
        initial: law of the factors from which descent starts; their columns are those of the path.
        optimizer: an optax transformation.
        loss: of one margin.
        head: of one attention output.
        seeds: number of problems to draw.
        key: root key; seed s draws its problem and its start from `fold_in(key, s)`, each with its own key.
        steps: of descent.
        radii: of the balls.
    """

    law: data.Law
    initial: initial.Law
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int
    radii: Radii

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        start = jax.eval_shape(lambda key: self.initial(key, 2), jax.random.key(0))
        if not isinstance(start, Factored):
            raise TypeError(f"weights: expected factors K and Q such as weights=factored, found {self.initial!r}")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii."""
        return {"radius": self.radii()}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS.get(name, ("radius",))

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        start = from_words(self.initial, problem.d)(weights_key)
        found = self._path(start.K.shape[-1])(problem)
        return _arrays(problem, data_key, weights_key, start, found)

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and starts, follow the paths, and descend."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        starts = batch.over_seeds(from_words(self.initial, problems.d), weights_keys)
        width, m = min(_TOGETHER, self.seeds), starts.K.shape[-1]
        of_path = effort.solving(self.seeds, (problems.d + problems.n) * m, len(self.radii()) * _STEPS)
        found = batch.over_seeds(self._path(m), problems, width=width, effort=of_path)
        run = descent.train_batch(
            starts,
            problems,
            optimizer=self.optimizer,
            steps=self.steps,
            record_every=self.steps,
            loss=self.loss,
            head=self.head,
        )
        end = run.weights
        assert isinstance(end, Factored)
        return _arrays(problems, data_keys, weights_keys, end, found)

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose points are solved at every radius, and the others."""
        kept = sum(int(record.read("solved", part).all(axis=1).sum()) for part in record.blocks())
        return {"kept": kept, "unsolved": self.seeds - kept}

    def _path(self, m: int) -> Callable[[Problem], regularization.NarrowPath]:
        return _path_of(m, self.loss, self.head, self.radii)


@lru_cache(maxsize=16)
def _path_of(
    m: int, loss: losses.Loss, head: heads.Head, radii: Radii
) -> Callable[[Problem], regularization.NarrowPath]:
    """Return the path as a function of the problem; one object per setting, so that it compiles once."""
    return jax.jit(lambda problem: regularization.narrow_path(problem, radii(), m, loss=loss, head=head))


def _arrays(
    problem: Problem, data_key: Any, weights_key: Any, end: Factored, path: regularization.NarrowPath
) -> dict[str, Any]:
    named = problem.arrays | {"data_key": data_key, "weights_key": weights_key}
    factors = {"K": end.K, "Q": end.Q, "K_path": path.weights.K, "Q_path": path.weights.Q}
    return named | factors | {name: getattr(path, name) for name in _OF_PATH}
