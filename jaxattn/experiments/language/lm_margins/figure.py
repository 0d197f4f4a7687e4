"""The figure of margins along descent on texts: histograms by kind, and the smallest margin over the norm of W."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_margins.claims import KINDS, LINEAR, RIVALS, SOLVED, at_end, kinds_of
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.view import rounded

# By kind of text, as in `SOLVED`.
_COLOURS = dict(zip(SOLVED, (palette.TEAL, palette.WINE), strict=True))
# How many texts without and with a conflict the interactive picture shows.
_TEXTS = 3
_TICKS = (-100, -10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row per kind of margins, their histogram at some snapshots, and the smallest margin along the steps."""
    (summary,) = summaries.values()
    edges = summary["edges"].values
    with page.style():
        figure = page.full(6.6)
        # In inches, nearly: the key, the histograms and the curves.
        key, above_, below_ = (
            figure.add_subfigure(row) for row in figure.add_gridspec(3, 1, height_ratios=(0.2, 4.0, 1.7))
        )
        panels = above_.subplots(len(KINDS), 1, sharex=True, sharey=True)
        for axes, letter, (kind, words) in zip(panels, "abc", KINDS.items(), strict=True):
            of_kind = summary.sel(kind=kind)
            _row(axes, of_kind)
            not_positive = float(of_kind["not_positive"][-1])
            axes.set_title(f"({letter}) {words}: {not_positive:.0%} not positive at the end")
            axes.axvline(0, color=palette.INK, linewidth=0.8)
        panels[-1].set_xscale("asinh", linear_width=LINEAR)
        panels[-1].set_xticks([tick for tick in _TICKS if edges[0] < tick < edges[-1]])
        panels[-1].set_xlabel("margin of the next word (logits), linear around 0, logarithmic beyond")
        panels[1].set_ylabel("share of margins")
        handles, labels = panels[0].get_legend_handles_labels()
        key.legend(handles, labels, loc="center", ncols=len(labels))
        verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
        _along(below_.subplots(), summary, f"throughout training: {verdicts['throughout']}")
        figure.suptitle(
            f"Margins become large and positive: {verdicts['positive']}; the margin is maximized: {verdicts['maximal']}"
        )
        page.add_counts(
            figure,
            summaries,
            f"{summary.attrs['no_conflict']} of the kept texts have no conflict. (a) to (c): a margin counts as often "
            "as its prefix stands in the text. If every prefix counts once, "
            f"{1 - at_end(summary, f'positive {RIVALS}'):.0%} of (c) are not positive: there, margins come in "
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
            curve = (summary[f"least {kind}{end}"].values for end in ("", "_low", "_high"))
            page.band(axes, summary["snapshot"].values, *curve, color=colour, label=f"texts {kind}")
            level = float(summary[f"largest {kind}"])
            axes.axhline(level, color=colour, linewidth=0.8, linestyle=":", label=f"largest possible value, {kind}")
    axes.set(xscale="log", xlabel="step", ylabel=r"smallest margin / $\|W\|_F$")
    axes.set_title(f"(d) the margin increases {finding}")
    axes.legend(loc="lower right")


def view(runs: Datasets) -> dict[str, Any]:
    """Return the margins of the first texts without a conflict, and with one: of every kind a list, along the steps."""
    (run,) = runs.values()
    masks, feasible = kinds_of(run).values, run["feasible"].values
    chosen = [*np.flatnonzero(feasible)[:_TEXTS], *np.flatnonzero(~feasible)[:_TEXTS]]
    margins = run["margins"].values
    return {
        "steps": run["shown"].values.tolist(),
        "kinds": list(KINDS),
        "texts": [
            {
                "seed": int(run["seed"].values[text]),
                "feasible": bool(feasible[text]),
                "margins": [rounded(margins[text][:, mask[text]].T) for mask in masks],
            }
            for text in chosen
        ],
    }
