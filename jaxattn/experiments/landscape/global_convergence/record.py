"""Descend from far along the SVM solution of a selection that is not the optimal one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, UInt32

from jaxattn import checks, data, descent, heads, losses, svm, tokens
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
    "weights_key": ("key_word",),
    "alpha": ("input",),
    "status": (),
    "W_initial": ("feature", "query_feature"),
    "W": ("feature", "query_feature"),
}


@dataclass(frozen=True)
class Far:
    """Starts `R W_alpha`, at which the tokens alpha lead by at least R; alpha is drawn uniformly.

    Attributes:
        margin: R.

    Raises:
        ValueError: a margin that is not positive and finite.
    """

    margin: float

    def __post_init__(self) -> None:
        if not 0 < self.margin < math.inf:
            raise ValueError(f"margin: expected a positive finite number, found {self.margin!r}")

    def __call__(self, words: UInt32[Array, " words"], problem: Problem) -> Int[Array, " n"]:
        """Draw alpha; if it is the optimal selection, the first input takes its next token instead."""
        alpha = jax.random.randint(jax.random.wrap_key_data(words), (problem.n,), 0, problem.T)
        same = jnp.all(alpha == tokens.optimal(problem))
        return alpha.at[0].set(jnp.where(same, (alpha[0] + 1) % problem.T, alpha[0]))


@dataclass(frozen=True)
class Basins:
    """One setting: problems, how far along a wrong selection to start, and the descent.

    Attributes:
        law: of the problems.
        initial: the start along the Frobenius Att-SVM solution of a drawn selection.
        optimizer: an optax transformation.
        loss: of one margin.
        head: of one attention output.
        seeds: number of problems to draw.
        key: root key; seed s draws its problem and its selection from `fold_in(key, s)`, each with its own key.
        steps: updates of one run.
    """

    law: data.Law
    initial: Far
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.initial, Far):
            raise TypeError(f"weights: expected starts along a wrong selection such as far, found {self.initial!r}")
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
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        W = jnp.zeros((problem.d, problem.d))
        own = {"alpha": self.initial(weights_key, problem), "status": jnp.zeros((), int), "W_initial": W, "W": W}
        return problem.arrays | {"data_key": data_key, "weights_key": weights_key} | own

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and selections, solve their Att-SVM, and descend from far along the solutions."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        alpha = batch.over_seeds(self.initial, weights_keys, problems)
        solution = svm.solve_batch(batch.over_seeds(svm.token_constraints, problems, alpha))
        starts = self.initial.margin * np.asarray(solution.W)
        run = descent.train_batch(
            starts,
            problems,
            optimizer=self.optimizer,
            steps=self.steps,
            record_every=self.steps,
            loss=self.loss,
            head=self.head,
        )
        own = {"alpha": alpha, "status": solution.status, "W_initial": starts, "W": run.weights}
        return problems.arrays | {"data_key": data_keys, "weights_key": weights_keys} | own

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose selection was separated or proved inseparable."""
        decided = record.read("status") != svm.Status.NOT_CONVERGED
        return {"kept": int(decided.sum()), "unsolved": int((~decided).sum())}
