"""Margins between the next word and every other candidate along descent (the second paper's histograms)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxattn import attention, language, svm
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch
from jaxattn.study.claims import Claim, Verdict, counts_of, too_little
from jaxattn.study.statistics import bootstrap, variables

# Steps near which the histograms are drawn, and their number of bins.
SHOWN, BINS = (1, 10, 100, 1000, 10_000), 40
# What a margin must exceed to be called large: the other word then has e^-5 of the next one's probability.
LARGE = 5.0
KINDS = ("no conflict", "conflict: other words", "conflict: words that also follow")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the margins `(e_next - e_t)^T W e_last` of every text at the shown snapshots.

    Args:
        record: of a `TextTraining` with the vocabulary as candidates.
        solver: of the max-margin problems, which say what texts have a conflict.

    Returns:
        For every kept seed the `margins`, (snapshot, prefix, word), and which of the entries are `others`, candidates
        beside the next word; whether the text is `feasible`; of the others those that `follow` the same last word
        elsewhere in the text. Prefixes that stand there several times are there once, with their `weight`.
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


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Count the margins of all texts in bins, and judge the claim.

    Args:
        datasets: of `measure`, of one run.
        key: of the bootstrap over texts.

    Returns:
        One dataset over the shown snapshots: `count` of margins by kind and bin, with the `edges` of the bins of each
        snapshot; `positive`, the share of positive margins by kind, and `median`, the mean over texts of their medians;
        the claim.
    """
    ((run, one),) = datasets.items()
    margins, masks = one["margins"].values, _kinds(one)
    spans = [margins[:, k][one["others"].values] for k in range(one.sizes["snapshot"])]
    edges = np.stack([np.linspace(*_around(span), BINS + 1) for span in spans])
    times = np.broadcast_to(one["weight"].values[..., None], masks[0].shape)
    count = np.stack(
        [
            [np.histogram(margins[:, k][mask], ends, weights=times[mask])[0] for mask in masks]
            for k, ends in enumerate(edges)
        ]
    )
    arrays: dict[str, Any] = {
        "count": (("snapshot", "kind", "bin"), count),
        "edges": (("snapshot", "edge"), edges),
        "texts": (("kind",), np.array([int(mask.any(axis=(1, 2)).sum()) for mask in masks])),
    }
    for kind, mask, k in zip(KINDS, masks, jax.random.split(key, len(KINDS)), strict=True):
        texts = mask.any(axis=(1, 2))
        if texts.any():
            values = margins[texts].transpose(0, 2, 3, 1)
            found = [each[chosen] for each, chosen in zip(values, mask[texts], strict=True)]
            positive = np.stack([np.mean(each > 0, axis=0) for each in found])
            median = np.stack([np.median(each, axis=0) for each in found])
            keys = jax.random.split(k)
            estimates = {
                f"positive {kind}": (("snapshot",), bootstrap(positive, keys[0])),
                f"median {kind}": (("snapshot",), bootstrap(median, keys[1])),
            }
            arrays |= variables(estimates)
    coordinates = {"snapshot": one["snapshot"].values, "kind": list(KINDS)}
    summary = xarray.Dataset(arrays, coordinates, {**one.attrs, "no_conflict": int(one["feasible"].values.sum())})
    return {run: summary}, [_claim(summary)]


def _kinds(one: xarray.Dataset) -> list[np.ndarray]:
    """Return which margins are of each kind, (seed, prefix, word) each."""
    others, follows = one["others"].values, one["follows"].values
    feasible = one["feasible"].values[:, None, None]
    return [others & feasible, others & ~feasible & ~follows, others & ~feasible & follows]


def _around(values: np.ndarray) -> tuple[float, float]:
    """Return ends of a scale that holds all values and 0."""
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    room = 0.02 * (high - low) or 1.0
    return low - room, high + room


def _claim(summary: xarray.Dataset) -> Claim:
    measured, interval = {}, {}
    kinds = [kind for kind in KINDS if f"median {kind}" in summary]
    for kind in kinds:
        for step in summary["snapshot"].values[[0, -1]]:
            for name, what in (("median", "median margin"), ("positive", "share of positive margins")):
                at, label = summary.sel(snapshot=step), f"{what} at step {step}, {kind}"
                measured[label] = float(at[f"{name} {kind}"])
                interval[label] = (float(at[f"{name} {kind}_low"]), float(at[f"{name} {kind}_high"]))
    first, last = summary.isel(snapshot=0), summary.isel(snapshot=-1)

    def moves(kind: str) -> bool:
        if kind not in kinds:
            return True
        near = abs(float(first[f"median {kind}"])) < 1
        return near and float(last[f"median {kind}_low"]) > LARGE and float(last[f"positive {kind}_low"]) > 0.99

    separated = moves(KINDS[0]) and moves(KINDS[1])
    verdict = Verdict.FAILS
    if separated:
        verdict = Verdict.HOLDS if moves(KINDS[2]) else Verdict.CORRECTED
    undecided = too_little(summary)
    return Claim(
        id="lm-margins:positive",
        source="withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, figure of margins",
        statement="The margins of the next word over the other candidates start near 0 and become large and positive.",
        expected={f"share of positive margins at step {summary['snapshot'].values[-1]}, {kind}": 1.0 for kind in kinds},
        measured=measured,
        interval=interval,
        counts=counts_of({"texts": summary}),
        verdict=Verdict.OPEN if undecided else verdict,
        note=undecided
        or f"Large: a median above {LARGE:g}, with 99 % of the margins positive; near 0: a median within 1. With a "
        "correction if that is so but for margins between two words that follow the same word in one text: these ask "
        "for opposite things, and stay at what their counts are worth, log-odds.",
    )
