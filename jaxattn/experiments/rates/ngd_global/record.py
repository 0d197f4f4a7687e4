"""A first stage that descends on W from four kinds of starts, and keeps the logits and the norm of W."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, UInt32

from jaxattn import checks, data, losses, svm, tokens
from jaxattn.experiments.rates.ngd_global import steps as by_steps
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
    "weights_key": ("key_word",),
    "wrong": ("input",),
    "status": (),
    "logits_snapshots": ("start", "snapshot", "input", "token"),
    "size_snapshots": ("start", "snapshot"),
    "path_snapshots": ("start", "snapshot"),
    "overflowed": ("start",),
}


@dataclass(frozen=True)
class Starts:
    """Starts at W = 0, at small and at large random weights, and far along a wrong selection, in the order of `NAMES`.

    The small weights have the norm `small`, the entries of the large ones the standard deviation `large`, and the
    tokens of the wrong selection lead by `margin`.
    """

    small: float
    large: float
    margin: float

    NAMES = ("zero", "small", "large", "wrong")

    def __post_init__(self) -> None:
        for name in ("small", "large", "margin"):
            checks.positive(name, getattr(self, name))

    def __call__(self, words: UInt32[Array, " words"], W_wrong: Float[Array, "d d"]) -> Float[Array, "starts d d"]:
        """Draw the starts from a key's words and the wrong selection's solution; random ones share one direction."""
        drawn = jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(words), 1), W_wrong.shape)
        small = self.small * drawn / jnp.linalg.norm(drawn)
        return jnp.stack([jnp.zeros_like(drawn), small, self.large * drawn, self.margin * W_wrong])

    def wrong(self, words: UInt32[Array, " words"], problem: Problem) -> Int[Array, " n"]:
        """Draw one of the T - 1 wrong tokens of every input."""
        places = jax.random.randint(jax.random.wrap_key_data(words), (problem.n,), 1, problem.T)
        return (tokens.optimal(problem) + places) % problem.T


@dataclass(frozen=True)
class Rates:
    """One setting: problems, and descent on W from each start by steps whose length depends on the gradient's norm."""

    law: data.Law
    initial: Starts
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    seeds: int
    key: int
    steps: int
    snapshots: Schedule

    def __post_init__(self) -> None:
        if not isinstance(self.initial, Starts):
            raise TypeError(f"weights: expected the four starts of Starts, found {self.initial!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")
        # Raises for an optimizer that cannot be followed.
        by_steps.followed(self.optimizer, self.steps, self.loss)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the snapshots."""
        return {"snapshot": np.asarray(self.snapshots(self.steps), int)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        starts = jax.vmap(by_steps.begun, in_axes=(0, None))(
            self.initial(weights_key, jnp.zeros((problem.d, problem.d))), problem
        )
        kept = jnp.zeros((len(Starts.NAMES), len(self.snapshots(self.steps))))
        own = {
            "data_key": data_key,
            "weights_key": weights_key,
            "wrong": self.initial.wrong(weights_key, problem),
            "status": jnp.zeros((), int),
            "logits_snapshots": kept[:, :, None, None] + starts.logits[:, None],
            "size_snapshots": kept,
            "path_snapshots": kept,
            "overflowed": kept[:, 0] > 0,
        }
        return problem.arrays | own

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and wrong selections, solve the Att-SVM of these, and descend from all starts."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        wrong = batch.over_seeds(self.initial.wrong, weights_keys, problems)
        solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, problems, wrong))
        starts = batch.over_seeds(self._begun, weights_keys, np.asarray(solution.W), problems)
        lanes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), starts)
        run = by_steps.followed(self.optimizer, self.steps, self.loss)
        multiply_adds = 1.0 * self.steps * lanes.products.size
        kept = np.asarray(self.snapshots(self.steps))
        found = batch.over_seeds(run, lanes, shared=(kept,), effort=effort.worth(multiply_adds))
        logits, size, path, overflowed = (one.reshape(len(seeds), -1, *one.shape[1:]) for one in found)
        own = {"data_key": data_keys, "weights_key": weights_keys, "wrong": wrong, "status": solution.status}
        series = {"logits_snapshots": logits, "size_snapshots": size, "path_snapshots": path}
        return problems.arrays | own | series | {"overflowed": overflowed}

    def _begun(self, words: Any, W_wrong: Any, problem: Problem) -> by_steps.Begun:
        return jax.vmap(by_steps.begun, in_axes=(0, None))(self.initial(words, W_wrong), problem)

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose wrong selection was separated or proved inseparable."""
        decided = record.read("status") != svm.Status.NOT_CONVERGED
        return {"kept": int(decided.sum()), "unsolved": int((~decided).sum())}
