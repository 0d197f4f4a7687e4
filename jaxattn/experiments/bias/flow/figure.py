"""The figure of the flow: how far its margins are from the largest in both norms, against the length of W."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.study.claims import total
from jaxattn.study.style import page, palette

# How the starts are drawn and called.
_LOOKS = {
    "diagonal": (palette.AMBER, ":", "diagonal $K$, $Q$"),
    "aligned": (palette.ROSE, "-.", "aligned start"),
    "random": (palette.WINE, "--", "random start"),
    "unbalanced": (palette.SKY, (0, (5, 1, 1, 1, 1, 1)), r"random, $\|K\| = 16\,\|Q\|$"),
    "one matrix": (palette.INK, "-", "training $W$"),
}
_TITLES = {"nuclear": "(a) nuclear Att-SVM", "frobenius": "(b) Frobenius Att-SVM"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw 1 less the mean margin ratio in both norms, and 1 - cos with the nuclear solution, against the length of W.

    Args:
        summaries: of `claims.summarize`.
    """
    short = {one.attrs["start"]: one for one in summaries.values() if one.attrs["steps"] == "short"}
    with page.style():
        figure = page.full(3.5)
        panels = figure.subplots(1, 3, sharex=True, sharey=True)
        for start, (colour, dashes, label) in _LOOKS.items():
            if start not in short:
                continue
            one, look = short[start], {"color": colour, "linestyle": dashes, "label": label}
            for axes, norm in zip(panels, _TITLES, strict=False):
                _lacking(axes, one.sel(norm=norm), look)
            if bool((one["off"].sel(norm="nuclear") < 1).any()):
                panels[2].plot(one["size"].values, one["off"].sel(norm="nuclear").values, **look)
        for axes, norm in zip(panels, _TITLES, strict=False):
            axes.axhline(1 - CLOSE, color=palette.GUIDE, linewidth=0.8)
            axes.set(title=_TITLES[norm], ylabel="1 - margin ratio")
        panels[2].set(title="(c) nuclear solution", ylabel="1 - cos")
        for axes in panels:
            axes.set(xscale="log", yscale="log", xlabel=r"$\|W\|_F$", ylim=(3e-4, 1.5))
            axes.set_xlim(left=0.1)
            axes.tick_params(labelleft=True)
        panels[0].legend(loc="lower left")
        figure.suptitle(_finding(short))
        page.add_counts(
            figure,
            {f"{len(summaries)} runs": xarray.Dataset(attrs=total(summaries))},
            "(a), (b): means of the margin ratio, bands 95 % intervals, against the median length of W; grey: "
            f"{CLOSE}. (c): medians over the seeds with a unique solution. All of the seeds that reach the minimal "
            "loss. Exponential loss; the shorter of two steps.",
        )
    return figure


def _lacking(axes: Axes, one: xarray.Dataset, look: dict) -> None:
    """Draw what lacks to a margin ratio of 1, with its interval."""
    mean, low, high = (np.maximum(1 - one[name].values, 1e-6) for name in ("path", "path_high", "path_low"))
    page.band(axes, one["size"].values, mean, low, high, **look)


def _finding(short: Mapping[str, xarray.Dataset]) -> str:
    """Return how many starts of K and Q tend to the nuclear Att-SVM."""
    pairs = [one for start, one in short.items() if start != "one matrix"]
    named = sum(bool(one["named"].sel(norm="nuclear")) and one.attrs["decided"] for one in pairs)
    return f"From {named} of {len(pairs)} starts of $K$ and $Q$, aligned or not, the flow tends to the nuclear Att-SVM"
