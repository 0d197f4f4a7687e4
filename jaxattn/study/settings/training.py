"""First stages with descent: draw problems and initial weights, and train."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from jaxattn import checks, data, descent, heads, initial, losses
from jaxattn.attention import Factored, Weights
from jaxattn.descent.training import outline
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.schedule import Schedule

# The axes of every array of a record, behind the seed axis.
_DIMS: dict[str, tuple[str, ...]] = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature", "unit"),  # a direction has the first alone
    "present": ("input", "token"),
    "W": ("feature", "query_feature"),
    "K": ("feature", "width"),
    "Q": ("query_feature", "width"),
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "probability": ("step",),
    "loss": ("step",),
    "gradient_norm": ("step",),
    "stalled": (),
}


@dataclass(frozen=True)
class Training:
    """One setting: what to draw, how to train, how often and from which key.

    A record of it holds every array of the problem and of the run (`descent.Run`), each seed's keys, and the weights at
    the start, at the snapshots and at the end.

    Attributes:
        law: of the problems.
        initial: law of the initial weights.
        optimizer: an optax transformation.
        loss: of one margin.
        head: of one attention output.
        seeds: how many problems to draw and train.
        key: root key; seed s draws from `fold_in(key, s)`, however many seeds there are.
        steps: updates of one run.
        snapshots: after which of the steps the weights are kept; without any, the record has no arrays of them.
        record_every: steps from one entry of the series to the next.
    """

    law: data.Law
    initial: initial.Law
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int
    snapshots: Schedule
    record_every: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        try:
            inspect.signature(self.initial).bind("key", "d")
        except TypeError:
            raise TypeError(f"weights: expected a law of a key and d such as free, found {self.initial!r}") from None
        for name in ("seeds", "steps", "record_every"):
            checks.count(name, getattr(self, name))
        # Raises where the schedule does not fit the number of steps.
        self.snapshots(self.steps)

    @property
    def descent(self) -> dict[str, Any]:
        """The keyword arguments of `descent.train` and `descent.train_batch`."""
        names = ("optimizer", "steps", "record_every", "loss", "head")
        return {name: getattr(self, name) for name in names} | {"snapshots": self.snapshots(self.steps)}

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the series, and of the kept weights, if any."""
        kept = np.asarray(self.snapshots(self.steps), int)
        return {"step": np.arange(0, self.steps, self.record_every)} | ({"snapshot": kept} if kept.size else {})

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        kept = ("snapshot",) if name.endswith("_snapshots") else ()
        axes = _DIMS[name.split("_")[0] if name[0] in "WKQ" else name]
        if name == "v":
            axes = axes[: jax.eval_shape(self.law, jax.random.key(self.key)).v.ndim]
        return kept + axes

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are read."""
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        if not isinstance(problem, Problem):
            raise TypeError(
                f"data: expected a law of problems such as sphere, found one of {type(problem).__name__} (texts are "
                "trained by experiments such as lm-cosine)"
            )
        weights = from_words(self.initial, problem.d)(weights_key)
        trained = outline(weights, problem, **self.descent)
        return _arrays(problem, weights, {"data_key": data_key, "weights_key": weights_key}, trained)

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and initial weights of some seeds, and train them."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        problems = batch.over_seeds(from_words(self.law), data_keys)
        weights = batch.over_seeds(from_words(self.initial, problems.d), weights_keys)
        trained = descent.train_batch(weights, problems, **self.descent, of=self.seeds)
        return _arrays(problems, weights, {"data_key": data_keys, "weights_key": weights_keys}, trained)

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        names = [name for name in ("W", "K", "Q") if name in record]
        finals = (weights_of({name: record.read(name, part) for name in names}) for part in record.blocks())
        kept = sum(int(finite_seeds(final).sum()) for final in finals)
        return {"kept": kept, "diverged": self.seeds - kept}


class Screening(Training):
    """A `Training` of a free W that records, at its snapshots, the logits and the Frobenius norm of W instead of W.

    W moves along its gradient, so these tell its correlation with every max-margin solution
    (`several_tokens.descriptions.distances`), in a tenth of the room: for tens of thousands of seeds of which few are
    looked at.
    """

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        own = {"logits_snapshots": ("snapshot", "input", "token"), "size_snapshots": ("snapshot",)}
        return own[name] if name in own else super().dims(name)

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are read."""
        arrays = super().one_seed(seed, root)
        if "W" not in arrays:
            raise ValueError("weights: expected a free W, of which the logits tell all, found K and Q")
        if "present" in arrays:
            raise ValueError("data: expected inputs that see all their tokens, found a law with a mask")
        if "W_snapshots" not in arrays:
            raise ValueError("snapshots: expected at least one, found none")
        return _screened(arrays, _read(arrays["W_snapshots"], arrays["X"], arrays["Z"]))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and initial weights of some seeds, and train them."""
        arrays = super().block(seeds, root)
        return _screened(arrays, batch.over_seeds(_read, arrays["W_snapshots"], arrays["X"], arrays["Z"]))


def _read(
    snapshots: Float[Array, "snapshots d d"], X: Float[Array, "n T d"], Z: Float[Array, "n d"]
) -> dict[str, Array]:
    """Return the logits `X_i W z_i` of every W, and its norm."""
    logits = jnp.einsum("ntd,kde,ne->knt", X, snapshots, Z)
    return {"logits_snapshots": logits, "size_snapshots": jnp.linalg.norm(snapshots, axis=(1, 2))}


def _screened(arrays: Mapping[str, Any], read: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what takes most of the room; the initial weights follow from their key."""
    return {name: array for name, array in arrays.items() if name not in ("W_snapshots", "W_initial")} | dict(read)


def weights_of(arrays: Mapping[str, Any], suffix: str = "") -> Weights:
    """Return the weights that a record holds: W, or K and Q, with a suffix `_initial` or `_snapshots`."""
    if "W" + suffix in arrays:
        return arrays["W" + suffix]
    return Factored(arrays["K" + suffix], arrays["Q" + suffix])


def finite_seeds(weights: Weights) -> Bool[np.ndarray, " seeds"]:
    """Whether all weights of a seed are finite, for each seed of the leading axis."""
    return np.all([np.isfinite(leaf).all(axis=(1, 2)) for leaf in jax.tree.leaves(weights)], axis=0)


def _arrays(problem: Problem, weights: Weights, keys: Mapping[str, Any], trained: descent.Run) -> dict[str, Any]:
    """Name every array of a run as the record does."""
    named: dict[str, Any] = problem.arrays | dict(keys)
    stages = {"": trained.weights, "_initial": weights, "_snapshots": trained.snapshots}
    if jax.tree.leaves(trained.snapshots)[0].shape[-3] == 0:
        del stages["_snapshots"]
    for suffix, value in stages.items():
        leaves = value._asdict() if isinstance(value, Factored) else {"W": value}
        named |= {name + suffix: leaf for name, leaf in leaves.items()}
    return named | {name: getattr(trained, name) for name in ("probability", "loss", "gradient_norm", "stalled")}
