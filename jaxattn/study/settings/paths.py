"""Regularization paths over many seeds, and how far they are from the max-margin solutions of the optimal tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import attention, data, heads, losses, metrics, regularization, svm, tokens
from jaxattn.attention import Factored
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.records import Record
from jaxattn.study.measuring.comparison import NORMS
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.training import weights_of

# The axes of every array of a record, behind the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "present": ("input", "token"),
    "data_key": ("key_word",),
    "W": ("radius", "feature", "query_feature"),
    "K": ("radius", "feature", "width"),
    "Q": ("radius", "query_feature", "width"),
    "steps": ("way", "radius"),
}
_OF_PATH = ("risk", "excess", "residual", "solved", "falling", "apart", "steps")
# Seeds that are followed together wait for the slowest of them.
_TOGETHER = 25


@dataclass(frozen=True)
class Radii:
    """Radii at equal distances on a logarithmic axis.

    Attributes:
        first: the smallest.
        last: the largest.
        count: how many.
    """

    first: float
    last: float
    count: int

    def __post_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"radii.count: expected at least 2, found {self.count}")
        if not 0 < self.first < self.last < float("inf"):
            raise ValueError(f"radii: expected 0 < first < last, found first = {self.first}, last = {self.last}")

    def __call__(self) -> np.ndarray:
        """Return them."""
        return np.geomspace(self.first, self.last, self.count)


@dataclass(frozen=True)
class Regularization:
    """One setting: what to draw, on which balls to minimize its risk, how often and from which key.

    Attributes:
        law: of the problems.
        ball: of W or of (K, Q).
        loss: of one margin.
        head: of one attention output.
        seeds: how many problems to draw.
        key: root key; seed s draws from `fold_in(key, s)`, however many seeds there are.
        radii: of the balls.
    """

    law: data.Law
    ball: regularization.Ball
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    radii: Radii

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        if self.seeds < 1:
            raise ValueError(f"seeds: expected at least 1, found {self.seeds}")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The radii, and the two ways that they are gone through."""
        return {"radius": self.radii(), "way": np.array([1, -1])}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS.get(name, ("radius",))

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are read."""
        data_key, _ = keys(seed, root)
        problem = from_words(self.law)(data_key)
        return _arrays(problem, data_key, self._path()(problem))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the problems of some seeds, and follow their paths."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        return _arrays(problems, data_keys, batch.over_seeds(self._path(), problems, width=min(_TOGETHER, self.seeds)))

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose points are solved on every radius, and the others."""
        kept = sum(int(record.read("solved", part).all(axis=1).sum()) for part in record.blocks())
        return {"kept": kept, "unsolved": self.seeds - kept}

    def _path(self) -> Callable[[Problem], regularization.Path]:
        return _path_of(self.ball, self.loss, self.head, self.radii)


@lru_cache(maxsize=64)
def _path_of(
    ball: regularization.Ball, loss: losses.Loss, head: heads.Head, radii: Radii
) -> Callable[[Problem], regularization.Path]:
    """Return the path as a function of the problem; one object a setting, so that it compiles once."""
    # Traced once, for the shapes of the record and for all seeds.
    return jax.jit(lambda problem: regularization.path(problem, radii(), ball, loss=loss, head=head))


def _arrays(problem: Problem, data_key: Any, path: regularization.Path) -> dict[str, Any]:
    weights = path.weights._asdict() if isinstance(path.weights, Factored) else {"W": path.weights}
    named = problem.arrays | {"data_key": data_key}
    return named | weights | {name: getattr(path, name) for name in _OF_PATH}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Hold the paths against the Att-SVM solutions of the optimal tokens, in every norm.

    A seed is kept if its path is solved on every radius and both solutions are certified optimal; others are counted by
    reason in the attributes `attempted`, `kept`, `infeasible` and `unsolved`.

    Args:
        record: of a `Regularization`, as `recording.run` writes it.
        solver: for all norms; those of each norm if None.

    Returns:
        A dataset with axes `seed`, `norm` and `radius`: `distance`, of W / R from the solution of each norm divided by
        its norm that the ball is of, in the Frobenius norm, and `off`, 1 - correlation; whether the optimal tokens are
        `selected`, and, along the path, `apart`, `falling`, `residual` and `excess`. With axis `attempt`, for all
        seeds, what is `solved` and the `status` of each SVM.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    weights = weights_of(arrays)
    problems = of_arrays(arrays)
    constraints = batch.over_seeds(_posed, problems)
    solutions = [svm.solve_batch(constraints, norm, solver=solver) for norm in NORMS]
    status = np.stack([solution.status for solution in solutions], axis=1)
    infeasible = (status == svm.Status.INFEASIBLE).any(axis=1)
    solved = arrays["solved"].all(axis=1)
    kept = solved & (status == svm.Status.OPTIMAL).all(axis=1)
    W = np.stack([solution.W for solution in solutions], axis=1)
    nuclear = isinstance(weights, Factored)
    lengths = np.linalg.svd(W, compute_uv=False).sum(axis=-1) if nuclear else np.linalg.norm(W, axis=(-1, -2))
    distance, off, selected = batch.over_seeds(
        _along,
        weights,
        problems,
        W / np.where(lengths > 0, lengths, 1.0)[..., None, None],
        shared=(record["radius"].values,),
    )
    per_radius = {name: (("seed", "radius"), arrays[name][kept]) for name in ("apart", "falling", "residual", "excess")}
    return xarray.Dataset(
        data_vars={
            "distance": (("seed", "norm", "radius"), distance[kept]),
            "off": (("seed", "norm", "radius"), off[kept]),
            "selected": (("seed", "radius"), selected[kept]),
            **per_radius,
            "status": (("attempt", "norm"), status),
            "solved": (("attempt", "radius"), arrays["solved"]),
            "steps": (("attempt", "way"), arrays["steps"].sum(axis=2)),
        },
        coords={
            "attempt": record["seed"].values,
            "seed": record["seed"].values[kept],
            "norm": np.array([norm.name for norm in NORMS], dtype=object),
            "radius": record["radius"].values,
            "way": record["way"].values,
        },
        attrs={
            "run": "KQ" if nuclear else "W",
            "attempted": kept.size,
            "kept": int(kept.sum()),
            "infeasible": int(infeasible.sum()),
            "unsolved": int((~kept & ~infeasible).sum()),
        },
    )


def _posed(problem: Problem) -> svm.Constraints:
    return svm.token_constraints(problem, tokens.optimal(problem))


def _along(
    weights: attention.Weights, problem: Problem, W: Float[Array, "norm d d"], radii: Float[Array, " radii"]
) -> tuple[Array, Array, Array]:
    """Return distances and 1 - correlations, (norm, radii), and whether every optimal token is selected, (radii)."""
    optimal = tokens.optimal(problem)

    def one(weights: attention.Weights, R: Array) -> tuple[Array, Array, Array]:
        along = attention.matrix(weights)
        distance = jax.vmap(lambda W: metrics.norm(along / R - W))(W)
        off = jax.vmap(lambda W: 1 - metrics.correlation(along, W))(W)
        return distance, off, (tokens.selected(weights, problem) == optimal).all()

    return jax.vmap(one, out_axes=(1, 1, 0))(weights, radii)
