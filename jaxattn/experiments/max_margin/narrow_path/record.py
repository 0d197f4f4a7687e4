"""Follow the regularization path of factors with few columns, and descend on factors of the same width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxattn import checks, data, descent, heads, initial, losses, regularization, svm, tokens
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
_OF_PATH = ("risk", "excess", "residual", "solved", "minimum", "agreeing", "drawn")
# Finds a solution from which the path starts as well.
_SOLVER = svm.LowRank(starts=96)
# Random directions from which a path starts.
_STARTS = 12
# Seeds whose paths are followed together wait for the slowest one.
_TOGETHER = 16
# The cost of a radius, in solutions of a max-margin problem of the same size: all starts, two ways, and many small
# systems.
_STEPS = 50 * _STARTS


@dataclass(frozen=True)
class NarrowPaths:
    """One setting: problems, and for each its path over the radii and one descent on factors of as many columns.

    Seed s draws its problem and its start from `fold_in(key, s)`, each with its own key.
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
        found = self._path(start.K.shape[-1])(problem, start)
        return _arrays(problem, data_key, weights_key, start, found)

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and starts, follow the paths, and descend."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        starts = batch.over_seeds(from_words(self.initial, problems.d), weights_keys)
        width, m = min(_TOGETHER, self.seeds), starts.K.shape[-1]
        of_path = effort.solving(self.seeds, (problems.d + problems.n) * m, len(self.radii()) * _STEPS)
        found = batch.over_seeds(self._path(m), problems, _solved(problems, m), width=width, effort=of_path)
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

    def _path(self, m: int) -> Callable[[Problem, Factored], regularization.NarrowPath]:
        return _path_of(m, self.loss, self.head, self.radii)


@lru_cache(maxsize=16)
def _path_of(
    m: int, loss: losses.Loss, head: heads.Head, radii: Radii
) -> Callable[[Problem, Factored], regularization.NarrowPath]:
    """Return the path as a function of problem and solution; one object per setting, so that it compiles once."""

    def path(problem: Problem, solution: Factored) -> regularization.NarrowPath:
        also = Factored(solution.K[None], solution.Q[None])
        return regularization.narrow_path(problem, radii(), m, starts=_STARTS, also=also, loss=loss, head=head)

    return jax.jit(path)


def _solved(problems: Problem, m: int) -> Factored:
    """Return factors of the best solution of rank m that the solver finds for the optimal tokens of every problem."""
    constraints = batch.over_seeds(svm.token_constraints, problems, batch.over_seeds(tokens.optimal, problems))
    found = svm.solve_batch(constraints, svm.nuclear_of_rank(m), solver=_SOLVER)
    # Where none is found the path starts from zeros, which end nowhere.
    U, s, Vt = np.linalg.svd(np.nan_to_num(found.W), full_matrices=False)
    root = np.sqrt(s[:, None, :m])
    return Factored(*map(jnp.asarray, (U[..., :m] * root, np.swapaxes(Vt, -1, -2)[..., :m] * root)))


def _arrays(
    problem: Problem, data_key: Any, weights_key: Any, end: Factored, path: regularization.NarrowPath
) -> dict[str, Any]:
    named = problem.arrays | {"data_key": data_key, "weights_key": weights_key}
    factors = {"K": end.K, "Q": end.Q, "K_path": path.weights.K, "Q_path": path.weights.Q}
    return named | factors | {name: getattr(path, name) for name in _OF_PATH}
