"""From the record of trained texts: the pairs of a prefix and a word that carry the gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float

from jaxattn import attention, language, losses, metrics, svm
from jaxattn.descent import gradients
from jaxattn.experiments.language import text_solutions
from jaxattn.experiments.language.gradient_sparsity.masked import support
from jaxattn.parallel import batch, lanes
from jaxattn.study.measuring import exclusions

# The part of the gradient that the pairs must carry.
_CARRIED = 0.99


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Measure the share of each pair of a prefix and a candidate word in the gradient at every snapshot.

    The gradient with respect to W is `sum_it a_it e_t e_last(i)^T`; the mass of a pair is `|a_it|`. The record is of a
    `TextTraining` with the cross entropy, or of a `SupportTraining`.

    Returns:
        For every kept seed whether its text is `feasible`; at the snapshots `share`, the smallest part of all pairs
        that carries 99 % of the mass, and `beside`, the part of the mass not on `core` pairs: for a feasible text the
        next words and the support vectors, for others the words that follow the prefix's last word somewhere, if there
        are several; `core`, the share of such pairs; `limit`, the share predicted by the multipliers of the max-margin
        solution, or `core` if there is none; `pairs`, their number; `dropped`, the number of prefixes without a choice;
        at the end `off`, 1 - cos with the max-margin solution of the whole text, and the `margin` ratio on it (0 and 1
        if there is none). Attributes: counts, `candidates`, the number of `prefixes` of a text, and whether the
        training was `masked`, on support vectors alone.

    Raises:
        ValueError: no seed is kept.
    """
    texts, finite = text_solutions.read(record)
    # Multipliers are needed for every prefix; infeasibility is certified more easily with duplicate prefixes merged.
    solution, merged = (
        svm.solve_batch(batch.over_seeds(language.constraints, one), svm.frobenius, solver=solver)
        for one in (texts, language.compact(texts))
    )
    feasible = text_solutions.is_solved(solution)
    kept = finite & (feasible | (np.asarray(merged.status) == svm.Status.INFEASIBLE))
    counts = exclusions.count(kept, diverged=~finite)
    if not kept.any():
        raise ValueError(f"gradient-sparsity: expected a kept seed, found counts {counts}")
    along = record["pairs_snapshots"].values, solution.W, solution.duals, feasible, texts
    share, beside, limit, core, pairs = batch.over_seeds(_along, *exclusions.only(kept, along))
    end = record["pairs"].values, solution, texts
    off, margin = batch.over_seeds(_end, *exclusions.only(kept, end))
    feasible, prefixes = feasible[kept], texts.last.shape[1]
    return xarray.Dataset(
        {
            "feasible": (("seed",), feasible),
            "share": (("seed", "snapshot"), share),
            "beside": (("seed", "snapshot"), beside),
            "limit": (("seed",), limit),
            "core": (("seed",), core),
            "pairs": (("seed",), pairs),
            "dropped": (("seed",), prefixes - np.asarray(texts.weight)[kept].sum(axis=1)),
            "off": (("seed",), np.where(feasible, off, 0.0)),
            "margin": (("seed",), np.where(feasible, margin, 1.0)),
        },
        {"seed": record["seed"].values[kept], "snapshot": record["snapshot"].values},
        counts
        | {"candidates": "vocabulary" if texts.counts is None else "prefix", "prefixes": prefixes}
        | {"masked": int("trained_on" in record)},
    )


def _end(
    pairs: Float[Array, "V V"], solution: svm.Solution, text: language.Choices
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return 1 - cos of a trained W with the max-margin solution of a text, and its margin ratio."""
    W = attention.matrix(language.weights(pairs, text))
    margin = metrics.margin_ratio(W, language.constraints(text), svm.frobenius, solution)
    return 1 - metrics.correlation(W, solution.W), margin


def _along(
    snapshots: Float[Array, "snapshot V V"],
    W_mm: Float[Array, "d d"],
    duals: Float[Array, "N V"],
    feasible: Bool[Array, ""],
    text: language.Choices,
) -> tuple[Array, ...]:
    """Return what `measure` needs for one seed: share, beside, limit, core, pairs."""
    pairs = text.others | _is_next(text)
    core = jnp.where(feasible, support(W_mm, text), contested(text))
    K = text.E @ text.E.T

    def of_one(coefficients: Array) -> tuple[Array, Array]:
        mass = masses(K @ coefficients @ K, text)
        return carrying(mass, pairs, text), jnp.sum(jnp.where(core, 0.0, mass)) / jnp.sum(mass)

    share, beside = jax.vmap(of_one)(snapshots)
    number = jnp.sum(text.weight[:, None] * pairs)
    of_core = jnp.sum(text.weight[:, None] * core) / number
    return share, beside, jnp.where(feasible, carrying(limits(duals, text), pairs, text), of_core), of_core, number


def _is_next(text: language.Choices) -> Bool[Array, "N V"]:
    return jax.nn.one_hot(text.next, text.E.shape[0], dtype=bool) & (text.weight[:, None] > 0)


def masses(table: Float[Array, "V V"], text: language.Choices) -> Float[Array, "N V"]:
    """Return `|a_it|` up to a common factor, from a table of logits, however small the cross entropy's gradient is.

    It is 0 for a word that is not a candidate.
    """
    slopes = language.input_slopes(text, losses.cross_entropy, gradients.direction)
    return jnp.abs(slopes(lanes.before(), table)[0])


def carrying(mass: Float[Array, "N V"], pairs: Bool[Array, "N V"], text: language.Choices) -> Float[Array, ""]:
    """Return the smallest share of the pairs that carries 99 % of the mass; 0 if there is no mass.

    A prefix of weight w stands for w equal ones, each with its part of the mass.
    """
    times = jnp.where(pairs, text.weight[:, None], 0.0).ravel()
    each = jnp.where(times > 0, mass.ravel() / jnp.where(times > 0, times, 1.0), 0.0)
    order = jnp.argsort(-each)
    each, times = each[order], times[order]
    sums = jnp.cumsum(each * times)
    wanted = _CARRIED * sums[-1]
    last = jnp.argmax(sums >= wanted)
    # Of the equal pairs at the threshold, as many as needed; a sum that is just enough may be rounded down.
    missing = jnp.where(each[last] > 0, (wanted - (sums - each * times)[last]) / each[last], 0.0)
    return ((jnp.cumsum(times) - times)[last] + jnp.ceil(missing - 1e-6)) / jnp.sum(times)


def contested(text: language.Choices) -> Bool[Array, "N V"]:
    """Return the words that follow a prefix's last word somewhere in the text, if several candidates do."""
    among = (language.followers(text) > 0)[text.last] & (text.others | _is_next(text))
    return among & (jnp.sum(among, axis=1, keepdims=True) > 1)


def limits(duals: Float[Array, "N V"], text: language.Choices) -> Float[Array, "N V"]:
    """Return the limits of the masses if W converges to the max-margin solution: its multipliers.

    The multipliers of equal rows, from prefixes that differ only in candidates, add up to
    one number; the cross entropy distributes it over the prefixes in proportion to `weight count_t / count_next`, and
    the next word has the total.
    """
    V = text.E.shape[0]
    counts = jnp.ones_like(duals) if text.counts is None else text.counts
    of_next = jnp.take_along_axis(counts, text.next[:, None], axis=1)
    parts = jnp.where(text.others, text.weight[:, None] * counts / jnp.where(of_next > 0, of_next, 1.0), 0.0)
    row = text.last * V + text.next
    total, whole = (jax.ops.segment_sum(one, row, num_segments=V * V)[row] for one in (duals, parts))
    others = jnp.where(parts > 0, total * parts / jnp.where(whole > 0, whole, 1.0), 0.0)
    is_next = jax.nn.one_hot(text.next, V, dtype=bool)
    return jnp.where(is_next, jnp.sum(others, axis=1, keepdims=True), others)
