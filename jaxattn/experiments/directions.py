"""A first stage that descends from far along the SVM solution of every choice of tokens of small problems."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from jaxattn import batch, data, descent, heads, losses, svm
from jaxattn.experiments.recording import from_words, keys
from jaxattn.problem import Problem
from jaxattn.records import Record

# The axes of every array of a record, behind the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "data_key": ("key_word",),
    "alpha": ("choice", "input"),
    "status": ("choice",),
    "W_initial": ("choice", "radius", "feature", "query_feature"),
    "W": ("choice", "radius", "feature", "query_feature"),
}


@dataclass(frozen=True)
class Along:
    """Starts `R W / ||W||_F` along a matrix W, one for each radius R.

    Attributes:
        radii: the norms of the starts, increasing.

    Raises:
        ValueError: no radii, or radii that are not positive, finite and increasing.
    """

    radii: Sequence[float]

    def __post_init__(self) -> None:
        radii = tuple(self.radii)
        if not radii or not all(0 < a < b for a, b in itertools.pairwise((*radii, np.inf))):
            raise ValueError(f"radii: expected positive numbers in increasing order, found {list(radii)}")
        object.__setattr__(self, "radii", radii)

    def __call__(self, W: Float[Array, "d d"]) -> Float[Array, "radii d d"]:
        """Return the starts; of W = 0, the answer of an infeasible problem, zeros."""
        length = jnp.linalg.norm(W)
        return jnp.asarray(self.radii)[:, None, None] * (W / jnp.where(length > 0, length, 1.0))[None]


@dataclass(frozen=True)
class Directions:
    """One setting: problems, from where to descend in them, and how.

    Attributes:
        law: of the problems; with T tokens in n inputs each has T^n choices of tokens.
        initial: where to start along the Frobenius Att-SVM solution of a choice.
        optimizer: an optax transformation.
        loss: of one margin.
        head: of one attention output.
        seeds: how many problems to draw.
        key: root key; the problem of seed s is drawn from `fold_in(key, s)`, and nothing else is random.
        steps: updates of one run.
    """

    law: data.Law
    initial: Along
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        if not isinstance(self.initial, Along):
            raise TypeError(f"weights: expected starts along a solution such as along, found {self.initial!r}")
        for name in ("seeds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, found {getattr(self, name)}")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii."""
        return {"radius": np.asarray(self.initial.radii)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are read."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        alpha = choices(problem)
        status = jnp.zeros(len(alpha), int)
        starts = jax.vmap(self.initial)(jnp.zeros((len(alpha), problem.d, problem.d)))
        return _arrays(problem, data_key) | {"alpha": alpha, "status": status, "W_initial": starts, "W": starts}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems, solve the Att-SVM of every choice, and descend from along each solution."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        own = choices(problems)
        alpha = np.tile(own, (len(seeds), 1))
        each = _repeated(problems, len(own))
        solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, each, alpha))
        starts = batch.over_seeds(self.initial, solution.W)
        radii = len(self.initial.radii)
        run = descent.train_batch(
            starts.reshape(-1, *starts.shape[2:]),
            _repeated(each, radii),
            optimizer=self.optimizer,
            steps=self.steps,
            record_every=self.steps,
            loss=self.loss,
            head=self.head,
        )
        lanes = {"alpha": alpha, "status": solution.status, "W_initial": starts, "W": run.weights}
        shape = len(seeds), len(own)
        square = (problems.d, problems.d)
        shapes = {"alpha": (problems.n,), "status": (), "W_initial": (radii, *square), "W": (radii, *square)}
        return _arrays(problems, data_keys) | {
            name: np.reshape(array, (*shape, *shapes[name])) for name, array in lanes.items()
        }

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the problems of which every choice was solved or shown infeasible."""
        decided = (record.read("status") != svm.Status.NOT_CONVERGED).all(axis=1)
        return {"kept": int(decided.sum()), "unsolved": int((~decided).sum())}


def choices(problem: Problem) -> np.ndarray:
    """Return every choice of one token an input, (T^n, n)."""
    return np.array(list(itertools.product(range(problem.T), repeat=problem.n)))


def _repeated(problems: Problem, times: int) -> Problem:
    return jax.tree.map(lambda leaf: np.repeat(leaf, times, axis=0), problems)


def _arrays(problem: Problem, data_key: Any) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("X", "Z", "Y", "v")} | {"data_key": data_key}
