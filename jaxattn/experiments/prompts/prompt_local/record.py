"""Descent from every point of a grid of prompts in the plane."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from jaxattn import checks, data, descent, heads, losses
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys

# The axes of every array of a record, after the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "p_initial": ("start", "feature"),
    "p_halfway": ("start", "feature"),
    "p": ("start", "feature"),
}


@dataclass(frozen=True)
class Grid:
    """Starts at the centres of the `side^2` cells of a square `[-reach, reach]^2`, row by row."""

    reach: float
    side: int

    def __post_init__(self) -> None:
        if not 0 < self.reach < math.inf:
            raise ValueError(f"reach: expected a positive finite number, found {self.reach!r}")
        if self.side < 2:
            raise ValueError(f"side: expected at least 2 cells, found {self.side!r}")

    def __call__(self) -> Float[np.ndarray, "start 2"]:
        """Return the starts."""
        centres = self.reach * ((2 * np.arange(self.side) + 1) / self.side - 1)
        rows, columns = np.meshgrid(centres, centres, indexing="ij")
        return np.stack([columns.ravel(), rows.ravel()], axis=1)


@dataclass(frozen=True)
class Grids:
    """One setting: problems in the plane with one query for all inputs, the starts, and the descent.

    Only the problems are random.
    """

    law: data.Law
    initial: Grid
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.initial, Grid):
            raise TypeError(f"weights: expected a grid of starts such as prompt_grid, found {self.initial!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """No coordinates except the seeds."""
        return {}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        if problem.d != 2:
            raise ValueError(f"data.d: expected 2, the plane of the starts, found {problem.d}")
        starts = jnp.asarray(self.initial())
        return problem.arrays | {"data_key": data_key, "p_initial": starts, "p_halfway": starts, "p": starts}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and descend on `W = p z^T` from every start."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        starts = self.initial()
        every = np.tile(starts, (len(seeds), 1))
        each: Problem = jax.tree.map(lambda leaf: np.repeat(leaf, len(starts), axis=0), problems)
        z = np.asarray(each.Z)[:, 0]
        run = descent.train_batch(
            every[:, :, None] * z[:, None, :],
            each,
            optimizer=self.optimizer,
            steps=self.steps,
            snapshots=(self.steps // 2,),
            record_every=self.steps,
            loss=self.loss,
            head=self.head,
        )
        shape = (len(seeds), *starts.shape)
        found = {"p_halfway": np.asarray(run.snapshots)[:, 0], "p": np.asarray(run.weights)}
        prompts = {name: np.einsum("sde,se->sd", W, z).reshape(shape) for name, W in found.items()}
        return problems.arrays | {"data_key": data_keys, "p_initial": every.reshape(shape)} | prompts

    def outcome(self, record: Record) -> dict[str, int]:
        """Keep every problem; the second stage tells how its starts end."""
        del record
        return {"kept": self.seeds}
