"""Histograms of the margins on texts at several steps of descent, on one axis."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_margins.claims import LINEAR
from jaxattn.study.style import page, palette

_TITLES = {
    "no conflict": "texts without a conflict",
    "conflict: other words": "texts with a conflict, over words that never follow",
    "conflict: words that also follow": "texts with a conflict, between two words that follow the same word",
}

_TICKS = (-100, -10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a row a kind of margins: their histogram at each snapshot.

    Args:
        summaries: of `claims.summarize`.
    """
    (one,) = summaries.values()
    with page.style():
        figure = page.full(4.6)
        panels = figure.subplots(one.sizes["kind"], 1, sharex=True, sharey=True)
        for axes, letter, kind in zip(panels, "abc", one["kind"].values, strict=True):
            _row(axes, one, str(kind))
            axes.set_title(f"({letter}) {_TITLES[str(kind)]}: {_finding(one, str(kind))}")
            axes.axvline(0, color=palette.INK, linewidth=0.8)
        panels[-1].set_xscale("asinh", linear_width=LINEAR)
        edges = one["edges"].values
        panels[-1].set_xticks([tick for tick in _TICKS if edges[0] < tick < edges[-1]])
        panels[-1].set_xlabel("margin of the next word (logits), linear around 0, logarithmic beyond")
        panels[len(panels) // 2].set_ylabel("share of margins")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        page.add_counts(
            figure,
            summaries,
            f"{one.attrs['no_conflict']} of the kept texts have no conflict. A margin counts as often as its prefix "
            f"stands in the text. {_once(one)}",
            counted="texts",
        )
    return figure


def _row(axes: Axes, one: xarray.Dataset, kind: str) -> None:
    """Draw the histograms of a kind, each of sum 1; the key of the steps has entries also if there is no margin."""
    count = one["count"].sel(kind=kind)
    for step, colour in zip(one["snapshot"].values, palette.ramp(one.sizes["snapshot"]), strict=True):
        of_step = count.sel(snapshot=step).values
        share = of_step / max(float(of_step.sum()), 1.0)
        axes.stairs(share, one["edges"].values, fill=True, alpha=0.35, color=colour)
        axes.stairs(share, one["edges"].values, color=colour, linewidth=1.0, label=f"step {int(step):,}")


def _finding(one: xarray.Dataset, kind: str) -> str:
    if f"positive {kind}" not in one:
        return "none"
    return f"{float(one['not_positive'].sel(kind=kind)[-1]):.0%} not positive at the end"


def _once(one: xarray.Dataset) -> str:
    """Explain the share of rival words, whose margins are opposite numbers in pairs."""
    rivals = f"positive {one['kind'].values[-1]}"
    if rivals not in one:
        return ""
    share = 1 - float(one[rivals][-1])
    return f"If every prefix counts once, {share:.0%} of (c) are not positive: there, margins come in opposite pairs."
