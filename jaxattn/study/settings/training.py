"""Settings with training: draw problems and initial weights, and train."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from jaxattn import checks, data, descent, heads, initial, losses, models
from jaxattn.descent.noise import Noise
from jaxattn.descent.penalties import Penalty
from jaxattn.descent.training import outline
from jaxattn.parallel import batch
from jaxattn.parallel.effort import SOLVING
from jaxattn.problem import Problem
from jaxattn.records import Record
from jaxattn.study.settings import parameters
from jaxattn.study.settings.parameters import finite_seeds, weights_of
from jaxattn.study.settings.recording import from_words, keys, noise_key
from jaxattn.study.settings.schedule import Schedule

# What a record holds of a run beside its weights.
SERIES = ("probability", "loss", "gradient_norm", "stalled")
# The axes of each array of a record except parameters, after the seed axis.
_DIMS: dict[str, tuple[str, ...]] = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature", "unit"),  # a direction has only the first
    "present": ("input", "token"),
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "noise_key": ("key_word",),
    "probability": ("step",),
    "loss": ("step",),
    "gradient_norm": ("step",),
    "stalled": (),
}


@dataclass(frozen=True)
class Training:
    """A setting: what to draw, how to train, how many seeds, and the key.

    Its record holds all arrays of the problem and of the run (`descent.Run`), each seed's keys, and the weights at the
    start, at the snapshots and at the end. `loss` is a function of one margin, `head` of one attention output and v,
    and `model` a value of `models`, or a function from parameters and a problem to logits. `snapshots` is the schedule
    of the steps after which the weights are kept; without any, the record has no snapshots. `record_every` is the
    number of steps from one entry of the series to the next.
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
    model: Any = models.plain
    noise: Noise = descent.full_batch
    penalty: Penalty = descent.unpenalized

    def __post_init__(self) -> None:
        if isinstance(self.law, data.Spheres):
            raise TypeError(f"data: expected a law of one dimension such as sphere, found {self.law!r}")
        try:
            inspect.signature(self.initial).bind("key", "d")
        except TypeError:
            raise TypeError(f"weights: expected a law of a key and d such as free, found {self.initial!r}") from None
        for name in ("seeds", "steps", "record_every"):
            checks.count(name, getattr(self, name))
        # Raises an error if the schedule does not fit the number of steps.
        self.snapshots(self.steps)

    @property
    def descent(self) -> dict[str, Any]:
        """The keyword arguments of `descent.train` and `descent.train_batch`."""
        names = ("optimizer", "steps", "record_every", "loss", "head", "model", "noise", "penalty")
        return {name: getattr(self, name) for name in names} | {"snapshots": self.snapshots(self.steps)}

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the series, and of the snapshots if there are any."""
        kept = np.asarray(self.snapshots(self.steps), int)
        return {"step": np.arange(0, self.steps, self.record_every)} | ({"snapshot": kept} if kept.size else {})

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        kept = ("snapshot",) if name.endswith("_snapshots") else ()
        if parameters.is_parameter(name):
            return kept + parameters.dims(name, self._axes_of_v if name.startswith("readout") else 2)
        axes = _DIMS[name]
        return kept + (axes[: self._axes_of_v] if name == "v" else axes)

    @property
    def _axes_of_v(self) -> int:
        """The number of axes of the head's parameters: 1 for a direction, 2 for a layer."""
        return jax.eval_shape(self.law, jax.random.key(self.key)).v.ndim

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, weights_key = keys(seed, root)
        problem = from_words(self.law)(data_key)
        if not isinstance(problem, Problem):
            raise TypeError(
                f"data: expected a law of problems such as sphere, found one of {type(problem).__name__} (texts are "
                "trained by experiments such as lm-cosine)"
            )
        weights = from_words(self.initial, problem.d)(weights_key)
        trained = outline(weights, problem, **self.descent)
        own = {"data_key": data_key, "weights_key": weights_key}
        if self.noise is not descent.full_batch:
            own["noise_key"] = noise_key(seed, root)
        return _arrays(problem, weights, own, trained)

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw problems and initial weights of some seeds, and train them."""
        own, problems, weights = self.drawn(seeds, root)
        of_noise = None
        if self.noise is not descent.full_batch:
            own["noise_key"] = batch.over_seeds(noise_key, seeds, shared=(root,))
            of_noise = jax.random.wrap_key_data(jnp.asarray(own["noise_key"]))
        trained = descent.train_batch(weights, problems, **self.descent, keys=of_noise, of=self.seeds)
        return _arrays(problems, weights, own, trained)

    def drawn(self, seeds: np.ndarray, root: np.ndarray) -> tuple[dict[str, Any], Problem, Any]:
        """Draw the keys of some seeds, and from them problems and initial weights."""
        data_keys, weights_keys = batch.over_seeds(keys, seeds, shared=(root,))
        # A briefly compiled program takes five times as long for a random number, and compiles no faster.
        problems = batch.over_seeds(from_words(self.law), data_keys, effort=SOLVING)
        weights = batch.over_seeds(from_words(self.initial, problems.d), weights_keys, effort=SOLVING)
        return {"data_key": data_keys, "weights_key": weights_keys}, problems, weights

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        names = [name for name in record.names if parameters.is_final(name)]
        finals = (weights_of({name: record.read(name, part) for name in names}) for part in record.blocks())
        kept = sum(int(finite_seeds(final).sum()) for final in finals)
        return {"kept": kept, "diverged": self.seeds - kept}


class Screening(Training):
    """A `Training` of a free W whose snapshots record the logits and the Frobenius norm of W instead of W.

    Since W moves along its gradient, these determine its cosine with every max-margin solution
    (`several_tokens.descriptions.distances`), in a tenth of the space: for tens of thousands of seeds.
    """

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        own = {"logits_snapshots": ("snapshot", "input", "token"), "size_snapshots": ("snapshot",)}
        return own[name] if name in own else super().dims(name)

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
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
    """Return the logits `X_i W z_i` of each W, and its norm."""
    logits = jnp.einsum("ntd,kde,ne->knt", X, snapshots, Z)
    return {"logits_snapshots": logits, "size_snapshots": jnp.linalg.norm(snapshots, axis=(1, 2))}


def _screened(arrays: Mapping[str, Any], read: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the largest arrays; the initial weights follow from their key."""
    return {name: array for name, array in arrays.items() if name not in ("W_snapshots", "W_initial")} | dict(read)


def _arrays(problem: Problem, weights: Any, keys: Mapping[str, Any], trained: descent.Run) -> dict[str, Any]:
    named: dict[str, Any] = problem.arrays | dict(keys)
    stages = {"": trained.weights, "_initial": weights, "_snapshots": trained.snapshots}
    if trained.snapshot_steps.shape[-1] == 0:
        del stages["_snapshots"]
    for suffix, value in stages.items():
        named |= {name + suffix: leaf for name, leaf in parameters.named(value).items()}
    return named | {name: getattr(trained, name) for name in SERIES}
