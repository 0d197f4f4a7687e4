"""The kq-limit figure: distance and margin along the steps, and what remains of the distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.local.kq_limit.claims import JOINT, LEFT, PUBLISHED, SEPARATE, SPAN, STEPS, names_of, worst
from jaxattn.study.claims import Datasets, Judgements, total
from jaxattn.study.style import page, palette

_COLOURS: dict[str, str] = dict(zip(STEPS, (palette.TEAL, palette.WINE, palette.AMBER), strict=True))
_WRITTEN = dict(zip(STEPS, ("constant step", "step like $k^{-1/2}$", "step / norm"), strict=True))
_LOOKS: dict[str, dict[str, Any]] = {
    SEPARATE: {"linestyle": "-", "marker": "o"},
    JOINT: {"linestyle": "--", "marker": "s", "markerfacecolor": "white"},
}
# The rules whose distance is drawn along the steps, besides the published one; (c) has all.
_DRAWN = (f"{STEPS[0]}, {JOINT}", f"{STEPS[1]}, {SEPARATE}", f"{STEPS[1]}, {JOINT}", f"{STEPS[2]}, {SEPARATE}")


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of some rules along the steps, and for all what remains of the distance in the limit."""
    published = summaries[PUBLISHED]
    # Of the other runs there are only some at size=small.
    present = {kind: [summaries[name] for name in names if name in summaries] for kind, names in names_of().items()}
    kinds = {kind: own for kind, own in present.items() if own}
    with page.style():
        figure = page.full(4.0)
        panels = page.body(figure)
        distance, margin, rest = panels.subplots(1, 3)
        for kind in (kind for kind in _DRAWN if kind in kinds):
            step, norm = kind.split(", ")
            _both(distance, margin, kinds[kind][0], color=_COLOURS[step], linestyle=_LOOKS[norm]["linestyle"])
        _both(distance, margin, published, color=palette.GUIDE, linestyle=":")
        distance.set(title="(a) distance from the nuclear solution", ylabel="direction error, 1 - cos")
        margin.set(title="(b) margin", ylabel="1 - margin ratio")
        for axes in (distance, margin):
            axes.set(xlabel="step $k$", xscale="log", yscale="log")
        _remains(rest, kinds, published)
        panels.legend(
            handles=_key(), loc="outside upper center", ncols=3, handlelength=3, title="median, 25th to 75th percentile"
        )
        verdict = judgements["kq-limit:direction"].verdict
        figure.suptitle(f"Descent on $(K, Q)$ converges to the direction of the nuclear solution: {verdict}")
        others = {run: summary for run, summary in summaries.items() if run != PUBLISHED}
        page.add_counts(
            figure,
            {PUBLISHED: published, f"{len(others)} others together": xarray.Dataset(attrs=total(others))},
            "(a), (b): medians over seeds, bands from the 25th to the 75th percentile; the step is $c$ times the rule, "
            f"here $c = 1$, as published 0.1. (c): share $a$ / (1 - cos) of the last error in fits of "
            f"1 - cos $= a + b\\,\\|W\\|^{{-q}}$ to the last factor of {SPAN} in steps, with 95 % intervals, for the "
            f"$c$ with the largest; above {LEFT:g} (dotted) it does not converge.",
        )
    return figure


def _both(distance: Axes, margin: Axes, run: xarray.Dataset, **look: str) -> None:
    steps = run["snapshot"].values
    page.band(distance, steps, *(run[f"off_quartile_{q}"].values for q in (50, 25, 75)), **look)
    page.band(margin, steps, *(1 - run[f"margin_quartile_{q}"].values for q in (50, 75, 25)), **look)


def _remains(axes: Axes, kinds: dict[str, list[xarray.Dataset]], published: xarray.Dataset) -> None:
    """Draw what remains in the limit under each rule, with its interval, and the threshold."""
    _one(axes, 0.0, [published], palette.GUIDE, marker="o")
    for kind, own in kinds.items():
        step, norm = kind.split(", ")
        height = 1 + STEPS.index(step) + (0.15 if norm == JOINT else -0.15)
        _one(axes, height, own, _COLOURS[step], **_LOOKS[norm])
    axes.axvline(LEFT, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_yticks(range(4), ["as published", *_WRITTEN.values()])
    for label, colour in zip(axes.get_yticklabels(), (palette.GUIDE, *_COLOURS.values()), strict=True):
        label.set_color(colour)
    axes.set(ylim=(3.5, -0.5), xlim=(-0.05, 1.05), xlabel="share of the last error")
    decreasing = max(worst(own, "remains").mean for kind, own in kinds.items() if not kind.startswith(STEPS[0]))
    axes.set_title(
        f"(c) left in the limit: {float(published['remains']):.0%} as published, at most {decreasing:.0%} with "
        "decreasing steps"
    )


def _one(axes: Axes, height: float, runs: Sequence[xarray.Dataset], colour: str, **look: Any) -> None:
    mean, low, high = worst(runs, "remains")
    axes.errorbar(mean, height, xerr=[[mean - low], [high - mean]], color=colour, markersize=4, **look)


def _key() -> list[Line2D]:
    """Return what explains colours, and apart from them dashes and markers."""
    steps = [Line2D([], [], color=_COLOURS[step], label=label) for step, label in _WRITTEN.items()]
    norms = [Line2D([], [], color=palette.INK, markersize=4, label=norm, **look) for norm, look in _LOOKS.items()]
    label = f"as published: constant step 0.1, {SEPARATE}"
    published = Line2D([], [], color=palette.GUIDE, linestyle=":", label=label)
    return [line for pair in zip(steps, [*norms, published], strict=True) for line in pair]
