"""The figure of local directions: where descent stays, and how far along a solution it must start for that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from jaxattn.study.style import page, palette

_LOOKS = {"stayed": (palette.TEAL, "o"), "left": (palette.WINE, "x")}
# Points that a panel still shows one by one; more of them are drawn smaller, down to a dot.
_APART = 500


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw three panels: final correlation over the score gap, shares left over R, and who is left.

    Args:
        summaries: "all starts", as `claims.summarize` returns it.
    """
    summary = summaries["all starts"]
    with page.style():
        figure = page.full(3.4)
        over_gap, over_radius, over_slack = figure.subplots(1, 3)
        _over_gap(over_gap, summary)
        _over_radius(over_radius, summary)
        _over_slack(over_slack, summary)
        remark = (
            "A start is $R\\, W_\\alpha / \\|W_\\alpha\\|_F$ for one of the $T^n$ choices $\\alpha$ of tokens; stayed: "
            "it selects $\\alpha$ at the end, with a correlation above 0.99. Bars: 95 % intervals, problems resampled."
        )
        page.add_counts(figure, summaries, remark, counted="choices")
    return figure


def _over_gap(axes: Axes, summary: xarray.Dataset) -> None:
    last = summary.isel(radius=-1)
    for name in _LOOKS:
        one = last.isel(start=last["stayed"].values == (name == "stayed"))
        _points(axes, one["gap"], one["correlation"], name, len(last["start"]))
    axes.axvline(0, color=palette.NOTE, linewidth=0.8)
    axes.set(
        title=f"(a) start at $R = {float(last['radius']):g}$",
        xlabel="score lead over the best support neighbour",
        ylabel=r"final correlation with $W_\alpha$",
    )
    axes.legend(loc="lower right")


def _points(axes: Axes, x: ArrayLike, y: ArrayLike, name: str, number: int) -> None:
    """Draw some of a panel's points; their name stands in the legend at the size of few."""
    colour, marker = _LOOKS[name]
    small = min(1.0, max(0.1, _APART / number))
    axes.scatter(
        x, y, s=9 * small, color=colour, marker=marker, linewidths=0.8 * small**0.5, rasterized=number > _APART
    )
    axes.scatter([], [], s=9, color=colour, marker=marker, linewidths=0.8, label=name)


def _over_radius(axes: Axes, summary: xarray.Dataset) -> None:
    for of, colour, marker in (("local", palette.TEAL, "o"), ("not local", palette.WINE, "s")):
        one = summary.sel(of=of)
        mean = one["left"].values
        errors = np.clip([mean - one["left_low"].values, one["left_high"].values - mean], 0, None)
        label = f"{of} ({int(one['starts'])})"
        look = {"color": colour, "marker": marker, "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(summary["radius"], mean, errors, label=label, **look)
    axes.set(title="(b) share of starts left", xlabel="$R$", ylabel="share left", xscale="log", ylim=(-0.03, 1.03))
    axes.legend(title=r"$\alpha$ locally optimal?", loc="center left")


def _over_slack(axes: Axes, summary: xarray.Dataset) -> None:
    local = summary.isel(start=summary["locally"].values)
    scaled = (local["slack"] * local["radius"] / local["length"]).values
    gap = np.broadcast_to(local["gap"].values[:, None], scaled.shape)
    shown = np.isfinite(scaled)
    for name in _LOOKS:
        own = shown & (local["stayed"].values == (name == "stayed"))
        _points(axes, scaled[own], gap[own], name, shown.sum())
    axes.set(
        title=r"(c) locally optimal $\alpha$, all $R$",
        xlabel=r"slack of better tokens $\times\, R\, /\, \|W_\alpha\|_F$",
        ylabel="score lead",
        xscale="log",
        yscale="log",
    )
    axes.legend(loc="lower left")
