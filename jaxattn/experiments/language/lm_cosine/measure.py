"""From the record of trained texts: their direction errors, 1 - cos, from the max-margin solutions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float

from jaxattn import attention, language, metrics, svm
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch

# Two hyperplanes are fundamentally different if the cosine of their normals is at most this: 60 degrees.
_DIFFERENT = 0.5


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Correlate W with the max-margin solutions of each text of a `TextTraining` with the vocabulary as candidates.

    Returns:
        For every kept seed: whether it is `feasible`, and if not, whether it `has_mixed`, a finite part and a solution
        of the sets; at the snapshots `soft`, 1 - cos with the soft-margin solution, and `mixed`, with `W_fin + C
        W_sets`, C fitted, or 0 if a text lacks one of these; `apart`, the relative difference of the soft optimum from
        the hard one (0 if there is none). At the end, the share of pairs of subsequences whose hyperplanes are
        `different`, and `different_own`, the same of those that end with different words and have different next words
        (1 if there are none).

    Raises:
        ValueError: no text is kept.
    """
    found = solutions(record, solver)
    pairs, feasible = record["pairs_snapshots"].values[found.kept], found.feasible
    soft, mixed = batch.over_seeds(_off, pairs, found.texts, found.soft.W, found.finite.W, found.sets.W)
    different, different_own = batch.over_seeds(_different, pairs[:, -1], found.texts)
    hard = np.where(feasible, found.hard.primal, 1.0)
    return xarray.Dataset(
        {
            "feasible": (("seed",), feasible),
            "has_mixed": (("seed",), found.mixed),
            "soft": (("seed", "snapshot"), soft),
            "mixed": (("seed", "snapshot"), np.where(found.both_parts[:, None], mixed, 0.0)),
            "apart": (("seed",), np.where(feasible, 1 - found.soft.primal / hard, 0.0)),
            "different": (("seed",), different),
            "different_own": (("seed",), different_own),
        },
        {"seed": record["seed"].values[found.kept], "snapshot": record["snapshot"].values},
        found.counts,
    )


def _off(
    pairs: Float[Array, "snapshots V V"],
    text: language.Choices,
    soft: Float[Array, "V V"],
    W_fin: Float[Array, "V V"],
    W_sets: Float[Array, "V V"],
) -> tuple[Float[Array, " snapshots"], Float[Array, " snapshots"]]:
    def of_one(C: Array) -> tuple[Array, Array]:
        W = attention.matrix(language.weights(C, text))
        limit = svm.with_finite_part(W, W_fin, W_sets)
        return 1 - metrics.correlation(W, soft), 1 - metrics.correlation(W, limit)

    return jax.vmap(of_one)(pairs)


def _different(pairs: Float[Array, "V V"], text: language.Choices) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the shares of pairs of subsequences with different hyperplanes: of all, and of pairs with own words.

    A subsequence that ends with e selects the word with the largest logit `t^T W e`, so W e is the normal of its
    hyperplane. An input of weight w stands for w subsequences.
    """
    normals = text.E[text.last] @ attention.matrix(language.weights(pairs, text)).T
    lengths = jnp.linalg.norm(normals, axis=1)
    cosines = normals @ normals.T / jnp.maximum(jnp.outer(lengths, lengths), jnp.finfo(normals.dtype).tiny)
    count = jnp.outer(text.weight, text.weight) - jnp.diag(text.weight)
    own = (text.last[:, None] != text.last[None]) & (text.next[:, None] != text.next[None])

    def share(chosen: Array) -> Array:
        total = jnp.sum(chosen)
        return jnp.where(total > 0, jnp.sum(chosen * (cosines <= _DIFFERENT)) / jnp.where(total > 0, total, 1.0), 1.0)

    return share(count), share(jnp.where(own, count, 0.0))
