"""Margins of the next word along descent on texts: how they are distributed, and the smallest over the norm of W."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, language, metrics, svm
from jaxattn.experiments.language import PAPER
from jaxattn.experiments.language.text_solutions import solutions
from jaxattn.parallel import batch
from jaxattn.study.claims import (
    LEAST_SEEDS,
    TRAINED,
    Datasets,
    Experiment,
    Judgement,
    Judgements,
    Setting,
    Source,
    claim,
)
from jaxattn.study.claims.criteria import Criterion, above, below, between
from jaxattn.study.estimates import estimated, exact, mean, number
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
# Fixed beforehand, of the smallest margin of a text over the norm of W: the share of its largest possible value that
# counts as maximal; where this value is 0, the distance from it that does; and a fall that counts as none.
_MAXIMAL, _AT_ZERO, _FALL = 0.95, 0.01, 0.001
# Texts by whether a hard solution exists, and their colours.
SOLVED = ("without a conflict", "with a conflict")
_COLOURS = dict(zip(SOLVED, (palette.TEAL, palette.WINE), strict=True))
# How many texts without and with a conflict the interactive picture shows.
_TEXTS = 3
_TICKS = (-100, -10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000)


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read the margins `(e_next - e_t)^T W e_last` of every text of a `TextTraining` with the vocabulary as candidates.

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


def summarize(runs: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Count the margins of all texts in bins.

    Returns:
        Of the one run, over the shown snapshots: `count` of margins by kind and bin, with the `edges` of the bins in
        logits, the same for all snapshots; `not_positive`, the share of this count that is not positive, by kind;
        `texts`, the number with margins of a kind; `positive`, the mean over texts of the share of positive margins by
        kind, each prefix counted once, and `median`, the mean over texts of their medians. Over all snapshots, for both
        kinds of texts, the mean of `least`, of its `change` since the snapshot before (0 at the first), and of `short`,
        by how much it falls short of its largest value, in units of this where it is not 0; the mean of the `largest`
        value, and the number of such `texts`.
    """
    run = runs["texts"]
    margins, weight, masks = run["margins"], run["weight"], _kinds_of(run)
    scaled = np.arcsinh(margins.values / _LINEAR)
    low, high = min(scaled.min(), 0.0), max(scaled.max(), 0.0)
    room = 0.02 * (high - low) or 1.0
    edges = _LINEAR * np.sinh(np.linspace(low - room, high + room, _BINS + 1))
    times = np.broadcast_to(weight.values[..., None], masks.shape[1:])
    count = [
        [np.histogram(at.values[mask], edges, weights=times[mask])[0] for mask in masks.values]
        for at in margins.transpose("shown", ...)
    ]
    each = ("seed", "prefix", "word")
    not_positive = (weight * masks * (margins <= 0)).sum(each) / np.maximum((weight * masks).sum(each), 1.0)
    has_kind = masks.any(("prefix", "word"))
    summary = xarray.Dataset(
        {
            "count": (("shown", "kind", "bin"), np.array(count)),
            "edges": ("edge", edges),
            "not_positive": not_positive.transpose("shown", "kind"),
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
    for k, (kind, chosen) in enumerate(zip(SOLVED, (run["feasible"], ~run["feasible"]), strict=True), len(_KINDS)):
        if chosen.any():
            least, largest = (run[part][chosen.values] for part in ("least", "largest"))
            short = (largest - least) / xarray.where(largest > 0, largest, 1.0)
            change = least.copy(data=np.diff(least, axis=1, prepend=least[:, :1]))
            estimates = {f"least {kind}": mean(least), f"change {kind}": mean(change), f"short {kind}": mean(short)}
            estimates |= {f"texts {kind}": exact(chosen.sum()), f"largest {kind}": exact(largest.mean())}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **estimates).data_vars)
    return {"texts": summary}


def _kinds_of(run: xarray.Dataset) -> xarray.DataArray:
    """Return which margins are of each kind, (kind, seed, prefix, word)."""
    others, follows, feasible = run["others"], run["follows"], run["feasible"]
    masks = [others & feasible, others & ~feasible & ~follows, others & ~feasible & follows]
    return xarray.concat(masks, xarray.DataArray(list(_KINDS), dims="kind", name="kind"))


@claim(
    "lm-margins:positive",
    Source(PAPER, "section 4, Figure 2 (margins)", Setting.PROXY),
    "The margins of the next word over the other candidates start near 0 and become large and positive.",
    needs=TRAINED,
)
def _positive(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    first, last = summary["shown"].values[[0, -1]].tolist()
    kinds = [kind for kind in _KINDS if f"median {kind}" in summary]
    median, positive = "median margin at step", "share of positive margins at step"
    numbers = {
        f"{words} {step}, {kind}": number(summary, f"{name} {kind}", shown=step)
        for kind in kinds
        for step in (first, last)
        for name, words in (("median", median), ("positive", positive))
    }

    def become_large(kind: str) -> tuple[Criterion, ...]:
        start, end = (f"{median} {step}, {kind}" for step in (first, last))
        share = f"{positive} {last}, {kind}"
        return (
            between(f"{start},", numbers[start], -_NEAR, _NEAR),
            above(f"{end},", numbers[end], _LARGE),
            above(f"{share},", numbers[share], _POSITIVE),
        )

    few = [
        f"{texts} texts with margins of the kind {kind!r} are too few; at least {LEAST_SEEDS} are needed."
        for kind in kinds
        if (texts := int(summary["texts"].sel(kind=kind))) < LEAST_SEEDS
    ]
    return Judgement(
        stated=[criterion for kind in kinds for criterion in become_large(kind)],
        corrected=[criterion for kind in kinds if kind != _RIVALS for criterion in become_large(kind)],
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


_THROUGHOUT = Source(PAPER, "section 4, Figure 2 (margins throughout training)", Setting.PROXY)
_OVER_NORM = "the smallest margin over the norm of W"


@claim(
    "lm-margins:maximal",
    _THROUGHOUT,
    "Training maximizes the margin between the next word and the other candidates.",
    needs=TRAINED,
)
def _maximal(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    most = dict(zip(SOLVED, (1 - _MAXIMAL, _AT_ZERO), strict=True))
    units = dict(zip(SOLVED, ("as a share of the largest value", "below the largest value, 0"), strict=True))
    stated = [
        below(
            f"shortfall of {_OVER_NORM} at the end, texts {kind}, {units[kind]},",
            number(summary, f"short {kind}", at=-1),
            most[kind],
        )
        for kind in SOLVED
    ]
    rise = float(summary[f"change {SOLVED[1]}"][-1])
    return Judgement(
        stated,
        corrected=stated[:1],
        correction="on texts without a conflict. On the others it falls short of the largest possible value by "
        f"{stated[1].value.mean:.2g}, and changes by {rise:.1g} from the last snapshot but one to the last.",
        remark="Margins themselves grow with the norm of W, so they are divided by it. On texts without a conflict the "
        "largest possible value is the inverse norm of the hard-margin solution. On texts with a conflict the margins "
        "between two words that follow the same word are opposite numbers, so it is 0.",
        numbers={f"{_OVER_NORM} at the end, texts {kind}": number(summary, f"least {kind}", at=-1) for kind in SOLVED},
        undecided=_few_of_a_kind(summary),
    )


@claim(
    "lm-margins:throughout",
    _THROUGHOUT,
    "The margin between the next word and the other candidates increases throughout training.",
    needs=TRAINED,
)
def _throughout(runs: Datasets) -> Judgement:
    summary = runs["texts"]
    snapshots = range(1, summary.sizes["snapshot"])
    return Judgement(
        [
            above(f"smallest change of {_OVER_NORM} between snapshots, texts {kind},", smallest, -_FALL)
            for kind in SOLVED
            for smallest in [min(number(summary, f"change {kind}", at=at) for at in snapshots)]
        ],
        remark="Margins themselves grow with the norm of W, so they are divided by it. The change is the mean over "
        f"texts from one snapshot to the next; a fall of at most {_FALL:g} counts as none.",
        undecided=_few_of_a_kind(summary),
    )


def _few_of_a_kind(summary: xarray.Dataset) -> str:
    """Return why the texts cannot decide; empty if they can."""
    fewest = min(int(summary[f"texts {kind}"]) for kind in SOLVED)
    return f"{fewest} texts of a kind are too few; {LEAST_SEEDS} are needed." * (fewest < LEAST_SEEDS)


def _at_end(summary: xarray.Dataset, name: str) -> float:
    """Return an estimate at the last snapshot, NaN if there are no such texts."""
    return float(summary[name][-1]) if name in summary else np.nan


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row per kind of margins, their histogram at some snapshots, and the smallest margin along the steps."""
    summary = summaries["texts"]
    edges = summary["edges"].values
    with page.style():
        figure = page.full(6.6)
        # In inches, nearly: the key, the histograms and the curves.
        rows = figure.add_gridspec(3, 1, height_ratios=(0.2, 4.0, 1.7))
        key, histograms, curves = (figure.add_subfigure(row) for row in rows)
        panels = histograms.subplots(len(_KINDS), 1, sharex=True, sharey=True)
        for axes, letter, (kind, words) in zip(panels, "abc", _KINDS.items(), strict=True):
            of_kind = summary.sel(kind=kind)
            _row(axes, of_kind)
            axes.set_title(f"({letter}) {words}: {float(of_kind['not_positive'][-1]):.0%} not positive at the end")
            axes.axvline(0, color=palette.INK, linewidth=0.8)
        panels[-1].set_xscale("asinh", linear_width=_LINEAR)
        panels[-1].set_xticks([tick for tick in _TICKS if edges[0] < tick < edges[-1]])
        panels[-1].set_xlabel("margin of the next word (logits), linear around 0, logarithmic beyond")
        panels[1].set_ylabel("share of margins")
        key.legend(*panels[0].get_legend_handles_labels(), loc="center", ncols=summary.sizes["shown"])
        verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
        _along(curves.subplots(), summary, f"throughout training: {verdicts['throughout']}")
        figure.suptitle(
            f"Margins become large and positive: {verdicts['positive']}; the margin is maximized: {verdicts['maximal']}"
        )
        page.add_counts(
            figure,
            summaries,
            f"{summary.attrs['no_conflict']} of the kept texts have no conflict. (a) to (c): a margin counts as often "
            "as its prefix stands in the text. If every prefix counts once, "
            f"{1 - _at_end(summary, f'positive {_RIVALS}'):.0%} of (c) are not positive: there, margins come in "
            "opposite pairs. (d): means over texts, bands 95 % intervals of the mean.",
            counted="texts",
        )
    return figure


def _row(axes: Axes, of_kind: xarray.Dataset) -> None:
    """Draw the histograms of a kind, each of sum 1; the key of the steps has entries also if there is no margin."""
    edges = of_kind["edges"].values
    for step, colour in zip(of_kind["shown"].values, palette.ramp(of_kind.sizes["shown"]), strict=True):
        count = of_kind["count"].sel(shown=step).values
        share = count / max(float(count.sum()), 1.0)
        axes.stairs(share, edges, fill=True, alpha=0.35, color=colour)
        axes.stairs(share, edges, color=colour, linewidth=1.0, label=f"step {int(step):,}")


def _along(axes: Axes, summary: xarray.Dataset, finding: str) -> None:
    """Draw the smallest margin of a text over the norm of W along the steps, and its largest value."""
    for kind, colour in _COLOURS.items():
        if f"least {kind}" in summary:
            page.course(axes, summary, f"least {kind}", color=colour, label=f"texts {kind}")
            level = float(summary[f"largest {kind}"])
            axes.axhline(level, color=colour, linewidth=0.8, linestyle=":", label=f"largest possible value, {kind}")
    axes.set(xscale="log", xlabel="step", ylabel=r"smallest margin / $\|W\|_F$")
    axes.set_title(f"(d) the margin increases {finding}")
    axes.legend(loc="lower right")


def view(runs: Datasets) -> dict[str, Any]:
    """Return the margins of the first texts without a conflict, and with one: of every kind a list, along the steps."""
    run = runs["texts"]
    masks, feasible = _kinds_of(run).values, run["feasible"].values
    chosen = [*np.flatnonzero(feasible)[:_TEXTS], *np.flatnonzero(~feasible)[:_TEXTS]]
    margins = run["margins"].values
    return {
        "steps": run["shown"].values.tolist(),
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


EXPERIMENT = Experiment(measure, (_positive, _maximal, _throughout), summarize=summarize, draw=draw, view=view)
