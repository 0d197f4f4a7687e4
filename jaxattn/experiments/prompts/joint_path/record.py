"""A first stage that follows joint regularization paths from the best choices of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxattn import checks, data, svm
from jaxattn.experiments.prompts.joint_path import choices
from jaxattn.experiments.prompts.joint_path.minimizers import Growth, JointPath, path
from jaxattn.parallel import batch, effort
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.paths import Radii
from jaxattn.study.settings.recording import from_words, keys

# The axes of every array of a record, behind the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "alpha": ("start", "input"),
    "margin": ("start",),
    "p": ("start", "radius", "feature"),
    "head": ("start", "radius", "feature"),
}
# Choices that paths are followed from, Newton steps on each radius, and the residual of `regularization.path`.
STARTS, _STEPS, SOLVED = 2, 80, 1e-6
# Paths that are followed together wait for the slowest of them.
_TOGETHER = 30
_path = partial(path, most=_STEPS)


@dataclass(frozen=True)
class JointPaths:
    """One setting: problems whose inputs share a unit query, and for each its paths over the radii of p and v."""

    law: data.Law
    ball: Growth
    seeds: int
    key: int
    radii: Radii

    def __post_init__(self) -> None:
        if not isinstance(self.ball, Growth):
            raise TypeError(f"ball: expected a Growth of the radius of v, found {self.ball!r}")
        checks.count("seeds", self.seeds)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii of p."""
        return {"radius": self.radii()}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS.get(name, ("start", "radius"))

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are read."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        alpha, margin = jnp.zeros((STARTS, problem.n), int), jnp.zeros(STARTS)
        # Not traced from `path`, which takes seconds.
        number = jnp.zeros((STARTS, self.radii().size))
        vector = jnp.zeros((*number.shape, problem.d))
        found = JointPath(p=vector, head=vector, residual=number, log_risk=number, steps=number.astype(int))
        return _arrays(problem, data_key, choices.Choices(alpha, margin), found)  # pyright: ignore[reportArgumentType]

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems, choose tokens, and follow the paths from the token SVMs of these."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        if (problems.Z[:, :1] != problems.Z).any() or problems.present is not None:
            raise ValueError(f"data: expected inputs that share a query, such as data=shared_query, found {self.law!r}")
        chosen = choices.best(problems, STARTS)
        lanes = jax.tree.map(lambda leaf: np.repeat(leaf, STARTS, axis=0), problems)
        rows = batch.over_seeds(svm.token_constraints, lanes, chosen.alpha.reshape(-1, problems.n))
        # Paths without a solution begin at 0; the second stage excludes them.
        starts = np.nan_to_num(np.asarray(svm.solve_batch(rows).W))
        all_lanes, R = self.seeds * STARTS, self.radii()
        width = min(_TOGETHER, all_lanes)
        of_path = effort.solving(all_lanes, problems.n * (problems.T - 1), R.size * _STEPS)
        found = batch.over_seeds(_path, lanes, starts, shared=self._radii(), width=width, effort=of_path)
        parted = jax.tree.map(lambda leaf: leaf.reshape(-1, STARTS, *leaf.shape[1:]), found)
        return _arrays(problems, data_keys, chosen, parted)

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds with a path that is solved on every radius, and the others."""
        kept = 0
        for part in record.blocks():
            solved = (record.read("residual", part) <= SOLVED).all(axis=2)
            kept += int(np.any(solved, axis=1).sum())
        return {"kept": kept, "unsolved": self.seeds - kept}

    def _radii(self) -> tuple[Float[Array, " radii"], Float[Array, " radii"]]:
        R = self.radii()
        return jnp.asarray(R), jnp.asarray(self.ball(R))


def _arrays(problem: Problem, data_key: Any, chosen: choices.Choices, found: JointPath) -> dict[str, Any]:
    return problem.arrays | {"data_key": data_key} | chosen._asdict() | found._asdict()
