"""Do the margins of the next word over the other candidates start near 0 and become large during training?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, language, svm
from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch
from jaxattn.study import claims
from jaxattn.study.claims import Datasets, Judgement, Judgements
from jaxattn.study.claims.criteria import Criterion, Number, above, between
from jaxattn.study.estimates import estimated, mean, number
from jaxattn.study.style import page, palette
from jaxattn.study.style.view import rounded

# Steps near which the histograms are drawn.
_SHOWN = (1, 10, 100, 1000, 10_000)
# Number of bins of a histogram, and the margin about which they turn from equal widths to widths in proportion.
_BINS, _LINEAR = 80, 0.05
# Kinds of margins, and their titles.
_RIVALS = "conflict: words that also follow"
_KINDS = {
    "no conflict": "texts without a conflict",
    "conflict: other words": "texts with a conflict, over words that never follow",
    _RIVALS: "texts with a conflict, between two words that follow the same word",
}
# A margin must exceed this to count as large: the other word then has e^-5 of the next word's probability.
_LARGE = 5.0
# How far from 0 a margin may start, and the share of margins that must be positive at the end.
_NEAR, _POSITIVE = 1.0, 0.99
# How many texts without and with a conflict the interactive picture shows.
_TEXTS = 3


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
    shown = sorted({int(np.argmin(np.abs(np.log(steps / step)))) for step in _SHOWN})
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
        found.counts,
    )


def _margins(
    pairs: Float[Array, "snapshots V V"], text: language.Choices
) -> tuple[Float[Array, "snapshots N V"], Bool[Array, "N V"], Bool[Array, "N V"]]:
    def of_one(C: Array) -> Array:
        W = attention.matrix(language.weights(C, text))
        return jnp.where(text.others, language.margins(W, text), 0.0)

    return jax.vmap(of_one)(pairs), text.others, text.others & (language.followers(text)[text.last] > 0)


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Count the margins of all texts in bins.

    Returns:
        Of the one run, over the shown snapshots: `count` of margins by kind and bin, with the `edges` of the bins in
        logits, the same for all snapshots; `not_positive`, the share of this count that is not positive, by kind;
        `texts`, the number with margins of a kind; `positive`, the mean over texts of the share of positive margins by
        kind, each prefix counted once, and `median`, the mean over texts of their medians.
    """
    ((name, run),) = runs.items()
    margins, weight, masks = run["margins"], run["weight"], _kinds(run)
    scaled = np.arcsinh(margins.values / _LINEAR)
    low, high = min(scaled.min(), 0.0), max(scaled.max(), 0.0)
    room = 0.02 * (high - low) or 1.0
    edges = _LINEAR * np.sinh(np.linspace(low - room, high + room, _BINS + 1))
    times = np.broadcast_to(weight.values[..., None], masks.shape[1:])
    count = [
        [np.histogram(at.values[mask], edges, weights=times[mask])[0] for mask in masks.values]
        for at in margins.transpose("snapshot", ...)
    ]
    each = ("seed", "prefix", "word")
    not_positive = (weight * masks * (margins <= 0)).sum(each) / np.maximum((weight * masks).sum(each), 1.0)
    has_kind = masks.any(("prefix", "word"))
    summary = xarray.Dataset(
        {
            "count": (("snapshot", "kind", "bin"), np.array(count)),
            "edges": ("edge", edges),
            "not_positive": not_positive.transpose("snapshot", "kind"),
            "texts": has_kind.sum("seed"),
        },
        attrs={**run.attrs, "no_conflict": int(run["feasible"].sum())},
    )
    for k, kind in enumerate(_KINDS):
        texts = has_kind.sel(kind=kind, drop=True).values
        if texts.any():
            of_kind = margins.where(masks.sel(kind=kind, drop=True))[texts]
            positive = (of_kind > 0).sum(("prefix", "word")) / of_kind.notnull().sum(("prefix", "word"))
            estimates = {f"positive {kind}": mean(positive), f"median {kind}": mean(of_kind.median(("prefix", "word")))}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **estimates).data_vars)
    return {name: summary}


def _kinds(run: xarray.Dataset) -> xarray.DataArray:
    """Return which margins are of each kind, (kind, seed, prefix, word)."""
    others, follows, feasible = run["others"], run["follows"], run["feasible"]
    masks = [others & feasible, others & ~feasible & ~follows, others & ~feasible & follows]
    return xarray.concat(masks, xarray.DataArray(list(_KINDS), dims="kind", name="kind"))


@claims.claim(
    "lm-margins:positive",
    claims.Source(PAPER, "section 4, Figure 2 (margins)", claims.Setting.PROXY),
    "The margins of the next word over the other candidates start near 0 and become large and positive.",
    needs=claims.TRAINED,
)
def _positive(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    first, last = summary["snapshot"].values[[0, -1]].tolist()
    kinds = [kind for kind in _KINDS if f"median {kind}" in summary]
    numbers = {
        f"{words} at step {step}, {kind}": number(summary, f"{name} {kind}", snapshot=step)
        for kind in kinds
        for step in (first, last)
        for name, words in (("median", "median margin"), ("positive", "share of positive margins"))
    }
    become_large = {kind: _become_large(numbers, first, last, kind) for kind in kinds}
    few = [
        f"{texts} texts with margins of the kind {kind!r} are too few; at least {claims.LEAST_SEEDS} are needed."
        for kind in kinds
        if (texts := int(summary["texts"].sel(kind=kind))) < claims.LEAST_SEEDS
    ]
    return Judgement(
        stated=[criterion for kind in kinds for criterion in become_large[kind]],
        corrected=[criterion for kind in kinds if kind != _RIVALS for criterion in become_large[kind]],
        correction="except for margins between two words that follow the same word in one text. Their median ends at "
        f"{_at_end(summary, f'median {_RIVALS}'):.2g}, and {_at_end(summary, f'positive {_RIVALS}'):.0%} are positive. "
        "Each of the two words is the next one somewhere, and the two margins are opposite numbers, so they cannot "
        "both be positive. Cross entropy is minimal where they are the log-odds of the two counts.",
        remark=f"Near 0: a median within {_NEAR:g}. Large: a median above {_LARGE:g}, and {_POSITIVE:.0%} of the "
        "margins positive.",
        numbers=numbers,
        expected={f"share of positive margins at step {last}, {kind}": 1.0 for kind in kinds},
        undecided=few[0] if few else "",
    )


def _become_large(numbers: Mapping[str, Number], first: int, last: int, kind: str) -> tuple[Criterion, ...]:
    start, end, positive = (
        f"median margin at step {first}, {kind}",
        f"median margin at step {last}, {kind}",
        f"share of positive margins at step {last}, {kind}",
    )
    return (
        between(f"{start},", numbers[start], -_NEAR, _NEAR),
        above(f"{end},", numbers[end], _LARGE),
        above(f"{positive},", numbers[positive], _POSITIVE),
    )


def _at_end(summary: xarray.Dataset, name: str) -> float:
    """Return an estimate at the last snapshot, NaN if there are no such texts."""
    return float(summary[name][-1]) if name in summary else np.nan


_TICKS = (-100, -10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row a kind of margins: their histogram at each snapshot."""
    (summary,) = summaries.values()
    edges = summary["edges"].values
    with page.style():
        figure = page.full(4.6)
        panels = figure.subplots(len(_KINDS), 1, sharex=True, sharey=True)
        for axes, letter, (kind, words) in zip(panels, "abc", _KINDS.items(), strict=True):
            of_kind = summary.sel(kind=kind)
            _row(axes, of_kind)
            not_positive = float(of_kind["not_positive"][-1])
            axes.set_title(f"({letter}) {words}: {not_positive:.0%} not positive at the end")
            axes.axvline(0, color=palette.INK, linewidth=0.8)
        panels[-1].set_xscale("asinh", linear_width=_LINEAR)
        panels[-1].set_xticks([tick for tick in _TICKS if edges[0] < tick < edges[-1]])
        panels[-1].set_xlabel("margin of the next word (logits), linear around 0, logarithmic beyond")
        panels[1].set_ylabel("share of margins")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        page.add_counts(
            figure,
            summaries,
            f"{summary.attrs['no_conflict']} of the kept texts have no conflict. A margin counts as often as its "
            "prefix stands in the text. If every prefix counts once, "
            f"{1 - _at_end(summary, f'positive {_RIVALS}'):.0%} of (c) are not positive: there, margins come in "
            "opposite pairs.",
            counted="texts",
        )
    return figure


def _row(axes: Axes, of_kind: xarray.Dataset) -> None:
    """Draw the histograms of a kind, each of sum 1; the key of the steps has entries also if there is no margin."""
    edges = of_kind["edges"].values
    for step, colour in zip(of_kind["snapshot"].values, palette.ramp(of_kind.sizes["snapshot"]), strict=True):
        count = of_kind["count"].sel(snapshot=step).values
        share = count / max(float(count.sum()), 1.0)
        axes.stairs(share, edges, fill=True, alpha=0.35, color=colour)
        axes.stairs(share, edges, color=colour, linewidth=1.0, label=f"step {int(step):,}")


def view(runs: Datasets) -> dict[str, Any]:
    """Return the margins of the first texts without a conflict, and with one: of every kind a list, along the steps."""
    (run,) = runs.values()
    masks, feasible = _kinds(run).values, run["feasible"].values
    chosen = [*np.flatnonzero(feasible)[:_TEXTS], *np.flatnonzero(~feasible)[:_TEXTS]]
    margins = run["margins"].values
    return {
        "steps": run["snapshot"].values.tolist(),
        "kinds": list(_KINDS),
        "texts": [
            {
                "seed": int(run["seed"].values[text]),
                "feasible": bool(feasible[text]),
                "margins": [rounded(margins[text][:, mask[text]].T) for mask in masks],
            }
            for text in chosen
        ],
    }


EXPERIMENT = claims.Experiment(measure, claims=(_positive,), summarize=summarize, draw=draw, view=view)
