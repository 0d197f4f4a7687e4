"""Descend from far along the SVM solution of every choice of tokens of small problems."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, UInt32

from jaxattn import checks, data, descent, heads, losses, svm
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
        """Return the starts; zeros for W = 0, which stands for an infeasible problem."""
        length = jnp.linalg.norm(W)
        return jnp.asarray(self.radii)[:, None, None] * (W / jnp.where(length > 0, length, 1.0))[None]


@dataclass(frozen=True)
class Directions:
    """One setting: the problems, the starts along the Frobenius solution of each choice of tokens, and the descent.

    A problem with n inputs of T tokens has T^n choices. The problem of each seed s, in each dimension d of the law, is
    drawn from `fold_in(key, s)` with d folded in; nothing else is random.
    """

    law: data.Spheres
    initial: Along
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of several dimensions such as spheres, found {self.law!r}")
        if not isinstance(self.initial, Along):
            raise TypeError(f"weights: expected starts along a solution such as along, found {self.initial!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The dimensions and the radii."""
        return {"d": np.asarray(self.law.d), "radius": np.asarray(self.initial.radii)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return ("d", *_DIMS[name])

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""

        def of_dimension(d: Any) -> dict[str, Any]:
            data_key = _key(seed, d, root)
            problem = from_words(self.law)(data_key, d)
            alpha = choices(problem)
            starts = jax.vmap(self.initial)(jnp.zeros((len(alpha), problem.d, problem.d)))
            named = {"alpha": alpha, "status": jnp.zeros(len(alpha), int), "W_initial": starts, "W": starts}
            return problem.arrays | {"data_key": data_key} | named

        return jax.vmap(of_dimension)(np.asarray(self.law.d))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems, solve the Att-SVM of every choice, and descend from the starts along each solution."""
        seed, d = (axis.ravel() for axis in np.meshgrid(seeds, np.asarray(self.law.d), indexing="ij"))
        data_keys = batch.over_seeds(_key, seed, d, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys, d)
        own, radii = choices(problems), len(self.initial.radii)
        alpha = np.tile(own, (len(seed), 1))
        each = _repeated(problems, len(own))
        solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, each, alpha))
        starts = batch.over_seeds(self.initial, solution.W)
        run = descent.train_batch(
            starts.reshape(-1, *starts.shape[2:]),
            _repeated(each, radii),
            optimizer=self.optimizer,
            steps=self.steps,
            record_every=self.steps,
            loss=self.loss,
            head=self.head,
        )
        final = np.reshape(jax.tree.leaves(run.weights)[0], starts.shape)
        of_choice = {"alpha": alpha, "status": solution.status, "W_initial": starts, "W": final}
        lanes = {name: array.reshape(len(seed), len(own), *array.shape[1:]) for name, array in of_choice.items()}
        lanes |= problems.arrays | {"data_key": data_keys}
        dimensions = len(self.law.d)
        return {name: array.reshape(len(seeds), dimensions, *array.shape[1:]) for name, array in lanes.items()}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds for which every choice was solved or proved infeasible."""
        decided = (record.read("status") != svm.Status.NOT_CONVERGED).all(axis=(1, 2))
        return {"kept": int(decided.sum()), "unsolved": int((~decided).sum())}


def choices(problem: Problem) -> np.ndarray:
    """Return every choice of one token per input, (T^n, n)."""
    return np.array(list(itertools.product(range(problem.T), repeat=problem.n)))


def _repeated(problems: Problem, times: int) -> Problem:
    return jax.tree.map(lambda leaf: np.repeat(leaf, times, axis=0), problems)


def _key(seed: Int[Array, ""], d: Int[Array, ""], root: UInt32[Array, " words"]) -> UInt32[Array, " words"]:
    """Return the words of a problem's own key."""
    data_key, _ = keys(seed, root)
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(data_key), d))
