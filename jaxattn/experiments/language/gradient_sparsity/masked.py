"""A first stage that trains attention on texts without the candidates that are not support vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxattn import language, svm
from jaxattn.parallel import batch
from jaxattn.study.settings.recording import from_words, keys
from jaxattn.study.settings.texts import TextTraining, trained

# A word with less slack (margin - 1) than this is a support vector.
_SUPPORT = 1e-6


def support(W_mm: Float[Array, "d d"], text: language.Choices) -> Bool[Array, "N V"]:
    """Return the next words and the support vectors of the hard-margin solution, (N, V)."""
    is_next = jax.nn.one_hot(text.next, text.E.shape[0], dtype=bool) & (text.weight[:, None] > 0)
    return is_next | (text.others & (language.margins(W_mm, text) < 1 + _SUPPORT))


@dataclass(frozen=True)
class SupportTraining(TextTraining):
    """A `TextTraining` on the support vectors alone; the record has the whole texts, and the candidates `trained_on`.

    Texts whose hard problem is not solved are trained on as they are.
    """

    def dims(self, name: str) -> tuple[str, ...]:
        """Return the axes of one seed's array."""
        return ("prefix", "word") if name == "trained_on" else super().dims(name)

    def one_seed(self, seed: Any, root: Any) -> dict[str, Any]:
        """Name the arrays of one seed; only their shapes are used."""
        arrays = super().one_seed(seed, root)
        return arrays | {"trained_on": jnp.zeros((len(arrays["last"]), len(arrays["E"])), bool)}

    def block(self, seeds: np.ndarray, root: np.ndarray) -> dict[str, Any]:
        """Draw the texts of some seeds, solve their hard problems, and train on the support vectors."""
        data_keys, _ = batch.over_seeds(keys, seeds, shared=(root,))
        texts = batch.over_seeds(from_words(self.law), data_keys)
        hard = svm.solve_batch(batch.over_seeds(language.constraints, texts), svm.frobenius)
        solved = np.asarray(hard.status) == svm.Status.OPTIMAL
        trained_on = np.asarray(batch.over_seeds(support, hard.W, texts)) | ~solved[:, None, None]
        counts = np.ones(trained_on.shape) if texts.counts is None else np.asarray(texts.counts)
        short = language.compact(texts._replace(counts=np.where(trained_on, counts, 0.0)))
        run = language.train_batch(short, **self.descent)
        return trained(texts, data_keys, run) | {"trained_on": trained_on}
