"""Settings of language modelling: draw texts, and train attention on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from jaxattn import checks, language, losses
from jaxattn.parallel import batch
from jaxattn.records import Record
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.schedule import Schedule

Law = Callable[[PRNGKeyArray], language.Choices]

# The axes of each array of a record, after the seed axis.
_DIMS: dict[str, tuple[str, ...]] = {
    "E": ("word", "feature"),
    "last": ("prefix",),
    "next": ("prefix",),
    "weight": ("prefix",),
    "counts": ("prefix", "word"),
    "scores": ("prefix", "word"),
    "data_key": ("key_word",),
    "draw_key": ("key_word",),
    "pairs": ("asking", "word"),
    "pairs_snapshots": ("snapshot", "asking", "word"),
    "probability": ("step",),
    "loss": ("step",),
    "gradient_norm": ("step",),
    "stalled": (),
}


@dataclass(frozen=True)
class Texts:
    """A setting without training: which texts to draw, how many, and the key.

    The key `draw_key` of a seed is for what the measurement draws for its text, for example weights.
    """

    law: Law
    seeds: int
    key: int

    def __post_init__(self) -> None:
        checks.count("seeds", self.seeds)
        _check(self.law, self.key)

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """No coordinates besides the seeds."""
        return {}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, draw_key = keys(seed, root)
        return arrays_of(from_words(self.law)(data_key)) | {"data_key": data_key, "draw_key": draw_key}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the texts of some seeds."""
        data_keys, draw_keys = batch.over_seeds(keys, seeds, shared=(root,))
        texts = batch.over_seeds(from_words(self.law), data_keys)
        return arrays_of(texts) | {"data_key": data_keys, "draw_key": draw_keys}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the drawn texts; all are kept, and the measurement finds which can be separated."""
        del record
        return {"kept": self.seeds}


@dataclass(frozen=True)
class TextTraining:
    """A setting: which texts to draw, how to train a free W on each from W = 0, how many seeds, and the key.

    The optimizer must move W along its gradient; `loss` is a function of the attended score. The other fields are those
    of `Training`.
    """

    law: Law
    optimizer: optax.GradientTransformation
    loss: losses.Loss
    seeds: int
    key: int
    steps: int
    snapshots: Schedule
    record_every: int = 1

    def __post_init__(self) -> None:
        for name in ("seeds", "steps", "record_every"):
            checks.count(name, getattr(self, name))
        _check(self.law, self.key)
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")

    @property
    def descent(self) -> dict[str, Any]:
        """The keyword arguments of `language.train` and `language.train_batch`."""
        names = ("optimizer", "steps", "record_every", "loss")
        return {name: getattr(self, name) for name in names} | {"snapshots": self.snapshots(self.steps)}

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the series, and of the snapshots."""
        kept = np.asarray(self.snapshots(self.steps), int)
        return {"step": np.arange(0, self.steps, self.record_every), "snapshot": kept}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Return the arrays of one seed by name; only their shapes are read."""
        data_key, _ = keys(seed, root)
        text = from_words(self.law)(data_key)
        return trained(text, data_key, language.train(text, **self.descent))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the texts of some seeds, and train on them with duplicate prefixes merged."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        texts = batch.over_seeds(from_words(self.law), data_keys)
        short = texts if texts.scores is not None else language.compact(texts)
        return trained(texts, data_keys, language.train_batch(short, **self.descent))

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        kept = sum(int(np.isfinite(record.read("pairs", part)).all(axis=(1, 2)).sum()) for part in record.blocks())
        return {"kept": kept, "diverged": self.seeds - kept}


def choices_of(arrays: Mapping[str, Any]) -> language.Choices:
    """Return the choices stored in a record; KeyError if it has none."""
    names = language.Choices._fields
    return language.Choices(**{name: arrays[name] for name in names if name in arrays or name in names[:4]})


def arrays_of(text: language.Choices) -> dict[str, Any]:
    """Return the arrays of a text under their names in a record."""
    return {name: leaf for name, leaf in text._asdict().items() if leaf is not None}


def trained(text: language.Choices, data_key: Any, run: language.TextRun) -> dict[str, Any]:
    """Return the arrays of a text and of its training under their names in a record."""
    of_run = {"pairs_snapshots" if name == "snapshots" else name: leaf for name, leaf in run._asdict().items()}
    return arrays_of(text) | {"data_key": data_key} | of_run


def _check(law: Any, key: int) -> None:
    drawn = jax.eval_shape(law, jax.random.key(key))
    if not isinstance(drawn, language.Choices):
        raise TypeError(f"data: expected a law of texts such as language, found one of {type(drawn).__name__}")
