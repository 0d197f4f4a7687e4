"""The first stage: train one setting over many seeds and write the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, UInt32

from jaxattn import batch, data, descent, heads, initial, losses
from jaxattn.attention import Factored, Weights
from jaxattn.problem import Problem
from jaxattn.records import Record, Variable, is_complete

# The axes of every array of a record, behind the seed axis.
_DIMS = {
    "X": ("input", "token", "feature"),
    "Z": ("input", "query_feature"),
    "Y": ("input",),
    "v": ("feature",),
    "W": ("feature", "query_feature"),
    "K": ("feature", "width"),
    "Q": ("query_feature", "width"),
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "probability": ("step",),
    "loss": ("step",),
    "gradient_norm": ("step",),
}


@dataclass(frozen=True)
class Training:
    """One setting: what to draw, how to train, how often and from which key.

    Attributes:
        law: of the problems.
        initial: law of the initial weights.
        optimizer: an optax transformation.
        loss: of one margin.
        head: of one attention output.
        seeds: how many problems to draw and train.
        key: root key; seed s draws from `fold_in(key, s)`, however many seeds there are.
        steps: updates of one run.
        snapshot_every: steps from one kept copy of the weights to the next.
    """

    law: data.Law
    initial: initial.Law
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    head: heads.Head
    seeds: int
    key: int
    steps: int
    snapshot_every: int

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "snapshot_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.snapshot_every > self.steps:
            raise ValueError(f"snapshot_every: expected at most steps = {self.steps}, found {self.snapshot_every}")

    @property
    def snapshots(self) -> range:
        """The steps after which weights are kept."""
        return range(self.snapshot_every, self.steps + 1, self.snapshot_every)

    @property
    def descent(self) -> dict[str, Any]:
        """The keyword arguments of `descent.train` and `descent.train_batch`."""
        names = ("optimizer", "steps", "snapshots", "loss", "head")
        return {name: getattr(self, name) for name in names}


def run(
    training: Training,
    path: Path,
    attributes: Mapping[str, Any],
    progress: Callable[[int], None] = lambda seeds: None,
) -> None:
    """Train every seed of a setting and write the record at `path`, block by block.

    A finished record is left as it is; one that was begun is gone on with.

    Args:
        training: the setting.
        path: of the record.
        attributes: its provenance; seconds, device, and how many seeds were kept and diverged are added.
        progress: called with the number of seeds after each block.

    Raises:
        RecordError: the record cannot be written.
        ValueError: a law or weights that do not fit; raised before any training.
    """
    if is_complete(path):
        progress(training.seeds)
        return
    root = _root(training)
    one = shapes(training)
    block = min(batch.lanes((), one), training.seeds)
    record = Record.create(path, _variables(one, training.seeds), _coordinates(training), attributes, block)
    unwritten = record.unwritten()
    progress(training.seeds - sum(part.stop - part.start for part in unwritten))
    for part in unwritten:
        started = time.perf_counter()
        problems, weights, keys = _draw(training, np.arange(part.start, part.stop), root, block)
        trained = descent.train_batch(weights, problems, chunk=block, **training.descent)
        record.write(part, _arrays(problems, weights, keys, trained), seconds=time.perf_counter() - started)
        progress(part.stop - part.start)
    final = weights_of({name: record.read(name) for name in ("W", "K", "Q") if name in one})
    kept = int(finite_seeds(final).sum())
    record.finish(kept=kept, diverged=training.seeds - kept, device=str(jax.devices()[0].device_kind))


def shapes(training: Training) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes of one seed's arrays, by name, without computing anything.

    Raises:
        ValueError, TypeError: what a law, loss, head or optimizer raises that does not fit.
    """
    return jax.eval_shape(partial(_one_seed, training), jax.ShapeDtypeStruct((), int), _root(training))


def weights_of(arrays: Mapping[str, Any], suffix: str = "") -> Weights:
    """Return the weights that a record holds: W, or K and Q, with a suffix `_initial` or `_snapshots`."""
    if "W" + suffix in arrays:
        return arrays["W" + suffix]
    return Factored(arrays["K" + suffix], arrays["Q" + suffix])


def finite_seeds(weights: Weights) -> Bool[np.ndarray, " seeds"]:
    """Whether all weights of a seed are finite, for each seed of the leading axis."""
    return np.all([np.isfinite(leaf).all(axis=(1, 2)) for leaf in jax.tree.leaves(weights)], axis=0)


def _root(training: Training) -> np.ndarray:
    return np.asarray(jax.random.key_data(jax.random.key(training.key)))


def _draw(training: Training, seeds: Any, root: Any, chunk: int) -> tuple[Problem, Weights, dict[str, Any]]:
    """Draw the problems and initial weights of some seeds, and the keys that they were drawn from."""
    data_keys, weights_keys = batch.over_seeds(_keys, seeds, shared=(root,), chunk=chunk)
    problems = batch.over_seeds(_from_words(training.law), data_keys, chunk=chunk)
    weights = batch.over_seeds(_from_words(training.initial, problems.d), weights_keys, chunk=chunk)
    return problems, weights, {"data_key": data_keys, "weights_key": weights_keys}


def _keys(seed: Int[Array, ""], root: UInt32[Array, " words"]) -> tuple[UInt32[Array, " words"], ...]:
    """Return the words of a seed's own keys, of its problem and of its initial weights."""
    keys = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(root), seed))
    return tuple(jax.random.key_data(keys))


@lru_cache(maxsize=64)
def _from_words(law: Callable[..., Any], *sizes: int) -> Callable[[UInt32[Array, " words"]], Any]:
    """Return a law as a function of its key's words; one object a law, so that it compiles once."""

    def drawn(words: UInt32[Array, " words"]) -> Any:
        return law(jax.random.wrap_key_data(words), *sizes)

    return drawn


def _one_seed(training: Training, seed: Any, root: Any) -> dict[str, Any]:
    """Name the arrays of one seed; only their shapes are read."""
    data_key, weights_key = _keys(seed, root)
    problem = _from_words(training.law)(data_key)
    weights = _from_words(training.initial, problem.d)(weights_key)
    trained = descent.train(weights, problem, **training.descent)
    return _arrays(problem, weights, {"data_key": data_key, "weights_key": weights_key}, trained)


def _arrays(problem: Problem, weights: Weights, keys: Mapping[str, Any], trained: descent.Run) -> dict[str, Any]:
    """Name every array of a run as the record does."""
    named = {name: getattr(problem, name) for name in ("X", "Z", "Y", "v")} | dict(keys)
    for suffix, value in (("", trained.weights), ("_initial", weights), ("_snapshots", trained.snapshots)):
        leaves = value._asdict() if isinstance(value, Factored) else {"W": value}
        named |= {name + suffix: leaf for name, leaf in leaves.items()}
    return named | {name: getattr(trained, name) for name in ("probability", "loss", "gradient_norm")}


def _variables(shapes: Mapping[str, jax.ShapeDtypeStruct], seeds: int) -> dict[str, Variable]:
    variables = {}
    for name, one in shapes.items():
        dims = _DIMS[name.split("_")[0] if name[0] in "WKQ" else name]
        kept = ("snapshot",) if name.endswith("_snapshots") else ()
        variables[name] = Variable(("seed", *kept, *dims), (seeds, *one.shape), np.dtype(one.dtype))
    return variables


def _coordinates(training: Training) -> dict[str, np.ndarray]:
    return {
        "seed": np.arange(training.seeds),
        "step": np.arange(training.steps),
        "snapshot": np.asarray(training.snapshots),
    }
