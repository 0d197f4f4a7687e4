"""Histograms of the margins on texts at several steps of descent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_COLOURS = (palette.TEAL, palette.AMBER, palette.WINE)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel a snapshot: the margins of all texts, stacked by kind.

    Args:
        summaries: of `claims.summarize`.
    """
    (one,) = summaries.values()
    steps = one["snapshot"].values
    with page.style():
        figure = page.full(3.2)
        panels = np.atleast_1d(figure.subplots(1, len(steps), sharey=True))
        for axes, letter, step in zip(panels, "abcdefgh", steps, strict=False):
            at = one.sel(snapshot=step)
            edges, bottom = at["edges"].values, np.zeros(at.sizes["bin"])
            share = at["count"].values / max(float(at["count"].values.sum()), 1.0)
            for kind, part, colour in zip(one["kind"].values, share, _COLOURS, strict=True):
                axes.stairs(bottom + part, edges, baseline=bottom, fill=True, color=colour, label=str(kind))
                bottom = bottom + part
            axes.axvline(0, color="black", linewidth=0.8)
            axes.set(title=f"({letter}) step {step}", xlabel="margin (logits)")
        panels[0].set_ylabel("share of margins")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        page.add_counts(
            figure,
            summaries,
            f"{one.attrs['no_conflict']} of the kept texts have no conflict. A margin counts as often as its prefix "
            "stands in the text. Axes differ.",
            counted="texts",
        )
    return figure
