"""The figure of the convergence types: stacked shares of global, local and other convergence against d."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_TYPES = {
    "global": ("global", palette.WINE),
    "local": ("local, not global", palette.TEAL),
    "neither": ("not local", palette.SKY),
    "unsaturated": ("not saturated", palette.EXCLUDED),
}
_SUPPORT = ("all tokens support vectors", palette.AMBER)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel for W and one for (K, Q): a stack of shares in every dimension, the event of the assumption beside.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.4)
        panels = figure.subplots(1, len(summaries), sharey=True)
        for axes, letter, (run, summary) in zip(panels, "ab", summaries.items(), strict=True):
            _panel(axes, summary)
            if run == "KQ":
                x = np.arange(summary.sizes["d"]) - 0.13
                look = {"color": "black", "marker": "o", "markersize": 4, "markerfacecolor": "white"}
                axes.plot(x, summary["own"], linestyle="none", label="global or local by nuclear SVM", **look)
            axes.set(title=f"({letter}) run of {page.RUNS[run]}", xlabel="dimension $d$ (seeds)")
        panels[0].set_ylabel("share of runs")
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        page.add_counts(
            figure,
            summaries,
            "Stacks: shares of the kept and ambiguous (not saturated) runs, with 95 % intervals of the sum up to each "
            "edge; local by the support vectors of the Frobenius solution. The narrow bar overlaps with the stack.",
        )
    return figure


def _panel(axes: Axes, summary: xarray.Dataset) -> None:
    x, width = np.arange(summary.sizes["d"]), 0.5
    bottom = np.zeros(len(x))
    for name, (label, colour) in _TYPES.items():
        one = summary.sel(type=name)
        axes.bar(x - 0.13, one["share"], width, bottom=bottom, color=colour, label=label)
        bottom = bottom + one["share"].values
        if name in ("global", "local"):
            shift = -0.25 if name == "global" else -0.01
            _interval(axes, x + shift, one, "up_to")
    label, colour = _SUPPORT
    axes.bar(x + 0.26, summary["all_support"], 0.2, color=colour, label=label)
    _interval(axes, x + 0.26, summary, "all_support")
    ticks = [f"{d}\n({seeds})" for d, seeds in zip(summary["d"].values, summary["seeds"].values, strict=True)]
    axes.set_xticks(x, ticks)
    axes.set(ylim=(0, 1.04))


def _interval(axes: Axes, x: np.ndarray, one: xarray.Dataset, name: str) -> None:
    mean = one[name].values
    errors = np.clip([mean - one[f"{name}_low"].values, one[f"{name}_high"].values - mean], 0, None)
    axes.errorbar(x, mean, errors, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
