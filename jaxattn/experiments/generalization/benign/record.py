"""A first stage that trains W on inputs with a common query, and keeps only W z: a vector instead of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import UInt32

from jaxattn import attention, checks, data, descent, heads, losses
from jaxattn.parallel import batch
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
    "test_key": ("key_word",),
    "w_snapshots": ("snapshot", "feature"),
    "gradient_norm": ("step",),
}


@dataclass(frozen=True)
class Selecting:
    """One setting: problems whose inputs share a query z of norm 1, and the training of W from W = 0.

    Seed s draws its problem from `fold_in(key, s)` and, with another key, its test inputs. Snapshots are the steps
    after which `w = W z` is kept.
    """

    law: data.Law
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int
    snapshots: Schedule

    def __post_init__(self) -> None:
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the series, and of the kept weights."""
        return {"step": np.arange(self.steps), "snapshot": np.asarray(self.snapshots(self.steps), int)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        data_key, test_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        kept = jnp.zeros((len(self.snapshots(self.steps)), problem.d))
        own = {"data_key": data_key, "test_key": test_key}
        return problem.arrays | own | {"w_snapshots": kept, "gradient_norm": jnp.zeros(self.steps)}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and train from W = 0."""
        data_keys, test_keys = _keys(seeds, root)
        problems = batch.over_seeds(from_words(self.law), data_keys)
        queries = np.asarray(problems.Z)
        if not np.allclose(queries, queries[:, :1]) or not np.allclose(np.linalg.norm(queries, axis=2), 1):
            raise ValueError("data: expected inputs with one common query of length 1, found others")
        run = descent.train_batch(
            attention.Spanned(B=jnp.zeros_like(problems.Z), Z=jnp.asarray(problems.Z)),
            problems,
            optimizer=self.optimizer,
            steps=self.steps,
            snapshots=self.snapshots(self.steps),
            loss=self.loss,
            head=self.head,
            of=self.seeds,
        )
        # W = sum_i b_i z^T, so W z is the sum of the b_i.
        kept = np.asarray(run.snapshots.B).sum(axis=2)
        own = {"data_key": data_keys, "test_key": test_keys}
        return problems.arrays | own | {"w_snapshots": kept, "gradient_norm": run.gradient_norm}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        finite = np.isfinite(record.read("w_snapshots")).all(axis=(1, 2))
        return {"kept": int(finite.sum()), "diverged": int((~finite).sum())}


def _keys(seeds: np.ndarray, root: np.ndarray) -> tuple[UInt32[np.ndarray, "seeds words"], ...]:
    return batch.over_seeds(keys, seeds, shared=(root,))
