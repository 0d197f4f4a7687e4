"""Margins between the next word and every other candidate along descent (the histograms of the second paper)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.lm_margins import examples
from jaxattn.statistics import bootstrap, variables
from jaxattn.study.claims import (
    LEAST_SEEDS,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    between,
    counts_of,
    number,
    too_little,
)

# Number of bins of a histogram, and the margin about which they turn from equal widths to widths in proportion.
BINS, LINEAR = 80, 0.05
KINDS = ("no conflict", "conflict: other words", "conflict: words that also follow")
# A margin must exceed this to count as large: the other word then has e^-5 of the next word's probability.
LARGE = 5.0
# How far from 0 a margin may start, and the share of margins that must be positive at the end.
_NEAR, _POSITIVE = 1.0, 0.99


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Count the margins of all texts in bins.

    Args:
        datasets: of `measure`, of one run.
        key: of the bootstrap over texts.

    Returns:
        One dataset over the shown snapshots: `count` of margins by kind and bin, with the `edges` of the bins in
        logits, the same for all snapshots; `not_positive`, the share of this count that is not positive, by kind;
        `texts`, the number with margins of a kind; `positive`, the mean over texts of the share of positive margins by
        kind, each prefix counted once, and `median`, the mean over texts of their medians.

    Raises:
        ValueError: there is not one run.
    """
    if len(datasets) != 1:
        raise ValueError(f"lm-margins: expected one run, found {sorted(datasets)}")
    ((run, one),) = datasets.items()
    margins, masks = one["margins"].values, kinds(one)
    low, high = _around(np.arcsinh(margins.swapaxes(0, 1)[:, one["others"].values] / LINEAR))
    edges = LINEAR * np.sinh(np.linspace(low, high, BINS + 1))
    times = np.broadcast_to(one["weight"].values[..., None], masks[0].shape)
    count = np.stack(
        [
            [np.histogram(margins[:, k][mask], edges, weights=times[mask])[0] for mask in masks]
            for k in range(one.sizes["snapshot"])
        ]
    )
    not_positive = np.stack(
        [
            [np.sum(times * (mask & (margins[:, k] <= 0))) / max(np.sum(times * mask), 1.0) for mask in masks]
            for k in range(one.sizes["snapshot"])
        ]
    )
    arrays: dict[str, Any] = {
        "count": (("snapshot", "kind", "bin"), count),
        "edges": (("edge",), edges),
        "not_positive": (("snapshot", "kind"), not_positive),
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
    attrs = {**one.attrs, "no_conflict": int(one["feasible"].values.sum())}
    return {run: xarray.Dataset(arrays, coordinates, attrs)}


def kinds(one: xarray.Dataset) -> list[np.ndarray]:
    """Return which margins are of each kind, (seed, prefix, word) each."""
    others, follows = one["others"].values, one["follows"].values
    feasible = one["feasible"].values[:, None, None]
    return [others & feasible, others & ~feasible & ~follows, others & ~feasible & follows]


def _around(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of a scale that contains all values and 0."""
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    room = 0.02 * (high - low) or 1.0
    return low - room, high + room


def _judge_positive(summaries: Datasets) -> Judgement:
    """All margins must start near 0 and become large; as corrected, all but those over words that also follow."""
    (summary,) = summaries.values()
    first, last = (summary.isel(snapshot=place) for place in (0, -1))
    kinds = [kind for kind in KINDS if f"median {kind}" in summary]
    measured: dict[str, Number] = {}
    for kind in kinds:
        for at in (first, last):
            for name, what in (("median", "median margin"), ("positive", "share of positive margins")):
                measured[f"{what} at step {int(at['snapshot'])}, {kind}"] = number(at, f"{name} {kind}")
    expected = {f"share of positive margins at step {int(last['snapshot'])}, {kind}": 1.0 for kind in kinds}
    return Judgement(
        numbers=measured,
        expected=expected,
        counts=counts_of({"texts": summary}),
        stated=tuple(one for kind in kinds for one in _become_large(first, last, kind)),
        corrected=tuple(one for kind in kinds if kind != KINDS[2] for one in _become_large(first, last, kind)),
        correction=_correction(last),
        undecided=too_little(summary) or _too_few_texts(summary, kinds),
        remark=f"Near 0: a median within {_NEAR:g}. Large: a median above {LARGE:g}, and {_POSITIVE:.0%} of the "
        "margins positive.",
    )


def _become_large(first: xarray.Dataset, last: xarray.Dataset, kind: str) -> tuple[Criterion, ...]:
    start, end = (f"at step {int(at['snapshot'])}, {kind}," for at in (first, last))
    return (
        between(f"median margin {start}", number(first, f"median {kind}"), -_NEAR, _NEAR),
        above(f"median margin {end}", number(last, f"median {kind}"), LARGE),
        above(f"share of positive margins {end}", number(last, f"positive {kind}"), _POSITIVE),
    )


def _correction(last: xarray.Dataset) -> str:
    parts = ["except for margins between two words that follow the same word in one text."]
    if f"median {KINDS[2]}" in last:
        median, positive = (float(last[f"{name} {KINDS[2]}"]) for name in ("median", "positive"))
        parts.append(f"Their median ends at {median:.2g}, and {positive:.0%} are positive.")
    parts.append(
        "Each of the two words is the next one somewhere, and the two margins are opposite numbers, so they cannot "
        "both be positive. Cross entropy is minimal where they are the log-odds of the two counts."
    )
    return " ".join(parts)


def _too_few_texts(summary: xarray.Dataset, kinds: list[str]) -> str:
    """Return the kind of margins that is in too few texts to decide, or nothing if there is none."""
    for kind in kinds:
        if (texts := int(summary["texts"].sel(kind=kind))) < LEAST_SEEDS:
            return f"{texts} texts with margins of the kind {kind!r} are too few; at least {LEAST_SEEDS} are needed."
    return ""


CLAIMS = (
    Claim(
        "lm-margins:positive",
        Source(PAPER, "section 4, Figure 2 (margins)", Setting.PROXY),
        "The margins of the next word over the other candidates start near 0 and become large and positive.",
        _judge_positive,
        examples.of_positive,
    ),
)
