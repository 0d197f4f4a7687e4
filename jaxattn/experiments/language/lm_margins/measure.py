"""From the record of trained texts: the margins of the next word over every other candidate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import attention, language, svm
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch

# Steps near which the histograms are drawn.
SHOWN = (1, 10, 100, 1000, 10_000)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the margins `(e_next - e_t)^T W e_last` of every text at the shown snapshots.

    Args:
        record: of a `TextTraining` with the vocabulary as candidates.
        solver: of the max-margin problems, which determine the texts with a conflict.

    Returns:
        For every kept seed the `margins`, (snapshot, prefix, word), and which of the entries are `others`, candidates
        other than the next word; whether the text is `feasible`; among the others, those that `follow` the same last
        word elsewhere in the text. Repeated prefixes are merged, with their `weight`.

    Raises:
        ValueError: no text is kept.
    """
    found = solutions(record, solver)
    steps = record["snapshot"].values
    shown = sorted({int(np.argmin(np.abs(np.log(steps / step)))) for step in SHOWN})
    pairs = record["pairs_snapshots"].values[found.kept][:, shown]
    margins, others, follows = batch.over_seeds(_margins, pairs, found.texts)
    return xarray.Dataset(
        {
            "margins": (("seed", "snapshot", "prefix", "word"), margins),
            "others": (("seed", "prefix", "word"), others),
            "follows": (("seed", "prefix", "word"), follows),
            "weight": (("seed", "prefix"), found.texts.weight),
            "feasible": (("seed",), found.feasible),
        },
        {"seed": record["seed"].values[found.kept], "snapshot": steps[shown]},
        {**found.counts, "run": "texts"},
    )


def _margins(
    pairs: Float[Array, "snapshots V V"], text: language.Choices
) -> tuple[Float[Array, "snapshots N V"], Bool[Array, "N V"], Bool[Array, "N V"]]:
    def of_one(C: Array) -> Array:
        W = attention.matrix(language.weights(C, text))
        return jnp.where(text.others, language.margins(W, text), 0.0)

    return jax.vmap(of_one)(pairs), text.others, text.others & (language.followers(text)[text.last] > 0)
