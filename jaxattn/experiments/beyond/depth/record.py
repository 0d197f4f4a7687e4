"""A first stage that trains two layers of attention on each problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

from jaxattn import checks, data, descent
from jaxattn.descent.optimizers import along
from jaxattn.descent.step_schedules import plain
from jaxattn.experiments.beyond.depth.layers import Layers, trained
from jaxattn.parallel import batch, effort
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.schedule import Schedule

# The axes of every array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "first": ("snapshot", "feature", "query_feature"),
    "second": ("snapshot", "feature", "query_feature"),
}


@dataclass(frozen=True)
class TwoLayers:
    """One setting: the problems, and the training of both layers on each, from zero and with logistic loss.

    The optimizer moves each layer along its own gradient's direction. Seed s draws from `fold_in(key, s)`, whatever the
    number of seeds. Snapshots are the steps after which the weights are kept.
    """

    law: data.Law
    optimizer: optax.GradientTransformation
    seeds: int
    key: int
    steps: int
    snapshots: Schedule

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        is_blind = isinstance(self.optimizer, descent.ScaleFree)
        if not is_blind or along(plain(self.optimizer.update)) is None:
            raise TypeError(
                "optimizer: expected one that moves a matrix along its gradient's direction, such as scale_free_gd, "
                f"found {type(self.optimizer).__name__}"
            )
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the kept weights."""
        return {"snapshot": np.asarray(self.snapshots(self.steps), int)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        if not isinstance(problem, Problem) or problem.present is not None or problem.v.ndim != 1:
            raise TypeError(f"data: expected a law such as sphere, found one of {type(problem).__name__} unlike it")
        return _arrays(problem, data_key, self._training()(problem))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and train both layers on them."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        n, T, d = problems.X.shape[1:]
        # The logits of both layers, and their gradients.
        a_step = 4.0 * n * T * d * (d + T)
        own = effort.worth(a_step * self.steps * self.seeds)
        return _arrays(problems, data_keys, batch.over_seeds(self._training(), problems, of=self.seeds, effort=own))

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        kept = 0
        for part in record.blocks():
            ends = [record.read(name, part)[:, -1] for name in Layers._fields]
            kept += int(np.all([np.isfinite(one).all(axis=(1, 2)) for one in ends], axis=0).sum())
        return {"kept": kept, "diverged": self.seeds - kept}

    def _training(self) -> Callable[[Problem], Layers]:
        return _training_by(self.optimizer, self.snapshots(self.steps))


@lru_cache(maxsize=16)
def _training_by(optimizer: optax.GradientTransformation, snapshots: tuple[int, ...]) -> Callable[[Problem], Layers]:
    """Return the training as a function of the problem; one object per setting, so that it compiles once."""

    def from_zero(problem: Problem) -> Layers:
        zero = jnp.zeros((problem.d, problem.d), problem.X.dtype)
        return trained(Layers(zero, zero), problem, optimizer, snapshots)

    return from_zero


def _arrays(problem: Problem, data_key: Any, layers: Layers) -> dict[str, Any]:
    return problem.arrays | {"data_key": data_key} | layers._asdict()
