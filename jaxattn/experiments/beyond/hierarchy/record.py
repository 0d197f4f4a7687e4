"""A first stage that trains decoders, and keeps what each head reads, its W, and what carries the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from jaxattn import checks, descent
from jaxattn.descent import stepping
from jaxattn.descent.optimizers import length_of
from jaxattn.experiments.beyond.hierarchy.attending import attended, hard
from jaxattn.experiments.beyond.hierarchy.decoder import Decoder, Parameters, log_loss
from jaxattn.experiments.beyond.hierarchy.tasks import Batch, Fixed
from jaxattn.parallel import batch, effort
from jaxattn.records import Record
from jaxattn.study.settings.recording import keys
from jaxattn.study.settings.schedule import Schedule

# The seeds of one program. A step of one seed takes equally long for any number of seeds, so programs are small enough
# to keep all cores busy.
_LANES = 10
# Optimizing a program fully takes longer than so many steps, of all seeds together, with a briefly compiled one.
_SHORT = 5000
# The axes of every array of a record, after the seed axis.
_DIMS = {
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "sequences": ("sequence", "token"),
    "sources": ("sequence", "token"),
    "counts": ("token",),
    "read": ("snapshot", "layer", "sequence", "token", "feature"),
    "W": ("snapshot", "layer", "head", "feature", "query_feature"),
    "start": ("layer", "head", "feature", "query_feature"),
    "log_loss": ("snapshot",),
    "log_loss_hard": ("snapshot",),
    "share": ("snapshot",),
}


@dataclass(frozen=True)
class Decoders:
    """One setting: a task, a decoder and its training, by the logarithm of its loss or by the loss itself.

    A `ScaleFree` optimizer follows the gradient of the logarithm, so that zero error is not the end; others that of the
    loss. Seed s draws from `fold_in(key, s)`. Snapshots are the steps after which is kept what is measured.
    """

    law: Fixed
    model: Decoder
    optimizer: optax.GradientTransformation
    seeds: int
    key: int
    steps: int
    snapshots: Schedule

    def __post_init__(self) -> None:
        for name, value, kind in (("data", self.law, Fixed), ("model", self.model, Decoder)):
            if not isinstance(value, kind):
                raise TypeError(f"{name}: expected a {kind.__name__} of the decoders' own, found {value!r}")
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")
        if not 1 <= self.law.since < self.model.length:
            raise ValueError(f"data: expected since within 1..{self.model.length - 1}, found {self.law.since}")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the snapshots."""
        return {"snapshot": np.asarray(self.snapshots(self.steps), int)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        words = keys(seed, root)
        return self._training()(*words, _drawing(self.model)(words[1]))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw and train the decoders of some seeds."""
        words = batch.over_seeds(keys, seeds, shared=(root,))
        # The first parameters need LAPACK, and programs that call it cannot run side by side.
        drawn = batch.over_seeds(_drawing(self.model), words[1])
        width = min(_LANES, self.seeds)
        own = effort.BRIEF if self.seeds * self.steps < _SHORT else effort.FULL
        found = batch.over_seeds(self._training(), *words, drawn, width=width, effort=own)
        return {name: np.asarray(array) for name, array in found.items()}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        kept = int(np.isfinite(record.read("log_loss")).all(axis=1).sum())
        return {"kept": kept, "diverged": self.seeds - kept}

    def _training(self) -> Callable[..., dict[str, Array]]:
        return _training_by(self.law, self.model, self.optimizer, self.steps, self.snapshots(self.steps))


@lru_cache(maxsize=16)
def _drawing(model: Decoder) -> Callable[[Array], Parameters]:
    """Return the drawing of the first parameters as a function of a key's words; one object per decoder."""
    return lambda words: model.initial(jax.random.wrap_key_data(words))


@lru_cache(maxsize=16)
def _training_by(
    law: Fixed, model: Decoder, optimizer: optax.GradientTransformation, steps: int, snapshots: tuple[int, ...]
) -> Callable[..., dict[str, Array]]:
    """Return the training as a function of two keys' words; one object per setting, so that it compiles once."""
    counts = np.arange(model.length) >= law.since
    in_logs = isinstance(optimizer, descent.ScaleFree)

    def loss(parameters: Parameters, drawn: Batch, attend: Callable[..., Array] = attended) -> Float[Array, ""]:
        logits, _ = model.logits(parameters, drawn.sequences, attend)
        return log_loss(logits, drawn.targets, jnp.broadcast_to(counts, drawn.targets.shape))

    def mean_loss(parameters: Parameters, drawn: Batch) -> Float[Array, ""]:
        return jnp.exp(loss(parameters, drawn))

    def slope(parameters: Parameters, drawn: Batch, step: Int[Array, ""], of: Callable[..., Any] = loss) -> Parameters:
        """Return a gradient, each part times its rate."""
        return model.rates.applied(jax.grad(of)(parameters, drawn), parameters, step)

    def trained(data_words: Array, weights_words: Array, parameters: Parameters) -> dict[str, Array]:
        key = jax.random.wrap_key_data(data_words)
        measured = law(key, 0)

        def one_step(k: Int[Array, ""], now: Any) -> Any:
            parameters, state = now
            drawn = law(key, k + 1)
            # Multiplying the gradient of the logarithm by the loss would compute the loss again for every entry.
            gradient: Any = slope(parameters, drawn, k, loss if in_logs else mean_loss)
            updates, state = optimizer.update(gradient, state, parameters)
            return optax.apply_updates(parameters, updates), state

        def kept(now: Any) -> dict[str, Array]:
            parameters, _ = now
            gradient = slope(parameters, measured, jnp.zeros((), int))
            of_attention = length_of(tuple(layer.attention for layer in gradient.layers), 0)
            return {
                "read": model.logits(parameters, measured.sequences)[1],
                "W": jnp.stack([layer.W for layer in parameters.layers]),
                "log_loss": loss(parameters, measured),
                "log_loss_hard": loss(parameters, measured, hard),
                "share": of_attention / length_of(gradient, 0),
            }

        given: Any = parameters
        begin = (parameters, optimizer.init(given))
        _, series = stepping.through(one_step, begin, jnp.asarray(np.asarray(snapshots)), steps, kept)
        return {
            "data_key": data_words,
            "weights_key": weights_words,
            "sequences": measured.sequences,
            "sources": measured.sources,
            "counts": jnp.asarray(counts),
            "start": jnp.stack([layer.W for layer in parameters.layers]),
        } | series

    return trained
