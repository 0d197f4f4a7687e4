"""A first stage that trains the feed-forward layer on single words, then the attention layer on sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from jaxattn import checks, descent, initial
from jaxattn.descent import stepping
from jaxattn.experiments.tasks.next_token_rate import model
from jaxattn.experiments.tasks.next_token_rate.law import Sentences
from jaxattn.parallel import batch, effort
from jaxattn.records import Record
from jaxattn.study.settings.parameters import finite_seeds
from jaxattn.study.settings.recording import keys
from jaxattn.study.settings.schedule import Schedule

# The axes of every array of a record, after the seed axis.
_DIMS = {
    "data_key": ("key_word",),
    "weights_key": ("key_word",),
    "E": ("word", "feature"),
    "last": ("input",),
    "best": ("input",),
    "present": ("input", "word"),
    "successor": ("word",),
    "W_ov": ("snapshot", "word", "feature"),
    "W_kq": ("snapshot", "feature", "query_feature"),
    "log_loss_ov": ("snapshot",),
    "log_excess_kq": ("snapshot",),
}


@dataclass(frozen=True)
class TwoStages:
    """One setting: texts, and the training of both layers, one after the other, for the same number of steps.

    Each layer starts from a (d, d) matrix, of which the feed-forward layer takes the first V rows. Seed s draws from
    `fold_in(key, s)`. Snapshots are the steps after which the weights are kept.
    """

    law: Callable[[PRNGKeyArray], Sentences]
    initial: initial.Law
    optimizer: optax.GradientTransformation
    seeds: int
    key: int
    steps: int
    snapshots: Schedule

    def __post_init__(self) -> None:
        for name in ("seeds", "steps"):
            checks.count(name, getattr(self, name))
        if not isinstance(self.optimizer, descent.ScaleFree):
            raise TypeError(
                "optimizer: expected one that depends only on the gradient's direction, such as scale_free_gd, found "
                f"{type(self.optimizer).__name__}"
            )
        if not self.snapshots(self.steps):
            raise ValueError("snapshots: expected at least one, found none")

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The steps of the snapshots."""
        return {"snapshot": np.asarray(self.snapshots(self.steps), int)}

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return _DIMS[name]

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        return self._training()(*keys(seed, root))

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the texts of some seeds, and train on them."""
        words = batch.over_seeds(keys, seeds, shared=(root,))
        found = batch.over_seeds(self._training(), *words, of=self.seeds, effort=effort.FULL)
        return {name: np.asarray(array) for name, array in found.items()}

    def outcome(self, record: Record) -> dict[str, int]:
        """Count the seeds whose weights stayed finite, and those that diverged."""
        kept = int(finite_seeds((record.read("W_ov"), record.read("W_kq"))).sum())
        return {"kept": kept, "diverged": self.seeds - kept}

    def _training(self) -> Callable[..., dict[str, Array]]:
        return _training_by(self.law, self.initial, self.optimizer, self.steps, self.snapshots(self.steps))


@lru_cache(maxsize=16)
def _training_by(
    law: Callable[[PRNGKeyArray], Sentences],
    start: initial.Law,
    optimizer: optax.GradientTransformation,
    steps: int,
    snapshots: tuple[int, ...],
) -> Callable[..., dict[str, Array]]:
    """Return the training as a function of two keys' words; one object per setting, so that it compiles once."""

    def stage(W: Array, slope: Callable[[Array], Array]) -> tuple[Array, Array]:
        def one_step(_: Int[Array, ""], now: Any) -> Any:
            W, state = now
            move, state = optimizer.update(slope(W), state, W)
            return W + move, state

        (W, _), kept = stepping.through(
            one_step, (W, optimizer.init(W)), jnp.asarray(np.asarray(snapshots)), steps, lambda now: now[0]
        )
        return W, kept

    def trained(data_words: Array, weights_words: Array) -> dict[str, Array]:
        sentences = law(jax.random.wrap_key_data(data_words))
        (V, d), text = sentences.text.E.shape, sentences.text
        ov_key, kq_key = jax.random.split(jax.random.wrap_key_data(weights_words))
        W_ov, of_ov = stage(start(ov_key, d)[:V], lambda W: model.feed_forward_slope(W, sentences))
        _, of_kq = stage(start(kq_key, d), lambda W: model.attention_slope(W, W_ov, sentences))
        return {
            "data_key": data_words,
            "weights_key": weights_words,
            "E": text.E,
            "last": text.last,
            "best": text.next,
            "present": sentences.present,
            "successor": sentences.successor,
            "W_ov": of_ov,
            "W_kq": of_kq,
            "log_loss_ov": jax.vmap(lambda W: model.log_feed_forward_loss(W, sentences))(of_ov),
            "log_excess_kq": jax.vmap(lambda W: model.log_excess(W, W_ov, sentences))(of_kq),
        }

    return trained
