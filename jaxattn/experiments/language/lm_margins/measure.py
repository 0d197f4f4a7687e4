"""From the record of trained texts: the margins of the next word over the other candidates, and the smallest one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import attention, language, metrics, svm
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch

# Steps near which the histograms are drawn.
_SHOWN = (1, 10, 100, 1000, 10_000)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the margins `(e_next - e_t)^T W e_last` of every text at the shown snapshots.

    Args:
        record: of a `TextTraining` with the vocabulary as candidates.
        solver: of the max-margin problems, which determine the texts with a conflict.

    Returns:
        For every kept seed at the shown snapshots the `margins`, (shown, prefix, word), and which of the entries are
        `others`, candidates other than the next word; whether the text is `feasible`; among the others, those that
        `follow` the same last word elsewhere in the text. Repeated prefixes are merged, with their `weight`. At all
        snapshots `least`, the smallest margin of the text over the norm of W; and `largest`, the largest value that
        this can have, the inverse norm of the hard solution, or 0 if there is none.

    Raises:
        ValueError: no text is kept.
    """
    found = solutions(record, solver)
    steps = record["snapshot"].values
    shown = sorted({int(np.argmin(np.abs(np.log(steps / step)))) for step in _SHOWN})
    pairs = record["pairs_snapshots"].values[found.kept]
    margins, others, follows = batch.over_seeds(_margins, pairs[:, shown], found.texts)
    length = np.where(found.feasible, np.linalg.norm(found.hard.W, axis=(1, 2)), np.inf)
    return xarray.Dataset(
        {
            "margins": (("seed", "shown", "prefix", "word"), margins),
            "others": (("seed", "prefix", "word"), others),
            "follows": (("seed", "prefix", "word"), follows),
            "weight": (("seed", "prefix"), found.texts.weight),
            "feasible": (("seed",), found.feasible),
            "least": (("seed", "snapshot"), batch.over_seeds(_least, pairs, found.texts)),
            "largest": (("seed",), 1 / length),
        },
        {"seed": record["seed"].values[found.kept], "shown": steps[shown], "snapshot": steps},
        found.counts,
    )


def _margins(
    pairs: Float[Array, "snapshots V V"], text: language.Choices
) -> tuple[Float[Array, "snapshots N V"], Bool[Array, "N V"], Bool[Array, "N V"]]:
    def of_one(C: Array) -> Array:
        W = attention.matrix(language.weights(C, text))
        return jnp.where(text.others, language.margins(W, text), 0.0)

    return jax.vmap(of_one)(pairs), text.others, text.others & (language.followers(text)[text.last] > 0)


def _least(pairs: Float[Array, "snapshots V V"], text: language.Choices) -> Float[Array, " snapshots"]:
    def of_one(C: Array) -> Array:
        W = attention.matrix(language.weights(C, text))
        return jnp.min(language.margins(W, text)) / metrics.norm(W)

    return jax.vmap(of_one)(pairs)
