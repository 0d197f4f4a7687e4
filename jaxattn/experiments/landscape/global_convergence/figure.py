"""The global-convergence figure: shares of seeds that select their optimal tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LOOKS = {"zero": (palette.TEAL, "o", "steps of 0.1"), "long": (palette.WINE, "s", "first step of 100")}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the shares by the first step's correlation and worst margin, by the spread of scores, and from far starts.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.8)
        left, middle, right, last = figure.subplots(1, 4, sharey=True)
        for k, (start, (colour, marker, label)) in enumerate(_LOOKS.items()):
            if start in summaries:
                look = {"color": colour, "marker": marker}
                _by_correlation(left, summaries[start], label, look, 0.006 * (2 * k - 1))
                _by_margin(middle, summaries[start], label, look, 0.08 * (2 * k - 1))
        middle.axvspan(4.5, 6.5, color=palette.AMBER, alpha=0.12, linewidth=0)
        if "random" in summaries:
            _by_spread(right, summaries["random"])
        far = {run: one for run, one in summaries.items() if one.attrs.get("start") == "far"}
        _from_far(last, list(far.values()))
        left.set(title="(a) by the first gradient", xlabel="its correlation with $W_{mm}$")
        left.set_ylabel("share of seeds, optimal tokens")
        middle.set(title="(b) by its worst margin", xlabel=r"relative to the best, that of $W_{mm}$")
        right.set(title="(c) by the other tokens' scores", xlabel="spread of scores: equal 0, as drawn 1")
        last.set(title="(d) equal scores, from $R\\,W_\\alpha$", xlabel="$R$, least margin of the start", xscale="log")
        for axes in (left, middle, right, last):
            axes.set_ylim(-0.03, 1.05)
            if axes.get_legend_handles_labels()[1]:
                axes.legend(loc="lower right" if axes is middle else "lower left")
        named = {_NAMES.get(start, start): one for start, one in summaries.items()}
        page.add_counts(
            figure,
            named,
            "Seeds that select their optimal tokens, 95 % Wilson intervals. (a), (b): sphere data, from $W = 0$; "
            "(b): all dimensions together; shaded: the first step separates them. (c): from random weights. (d): "
            r"$\alpha$ a drawn wrong selection; crosses: predicted for $R$ without bound from which inputs are served.",
        )
    return figure


_NAMES = {"zero": "$W = 0$", "long": "long first step", "random": "random weights"}


def _points(axes: Axes, x: np.ndarray, one: xarray.Dataset, name: str, **look: Any) -> None:
    """Draw shares where there are seeds, with their intervals."""
    there = one[f"{name}_seeds"].values > 0
    mean, low, high = (one[part].values[there] for part in (name, f"{name}_low", f"{name}_high"))
    axes.errorbar(x[there], mean, np.clip([mean - low, high - mean], 0, None), markersize=4, elinewidth=0.8, **look)


def _by_correlation(axes: Axes, summary: xarray.Dataset, label: str, look: dict[str, Any], aside: float) -> None:
    for run, dashes in zip(summary["run"].values, palette.STYLES, strict=False):
        one = summary.sel(run=run)
        size = f"{label}, $d = {int(one['d'])}$"
        _points(
            axes, one["correlation_bin"].values + aside, one, "by_correlation", linestyle=dashes, label=size, **look
        )


def _by_margin(axes: Axes, summary: xarray.Dataset, label: str, look: dict[str, Any], aside: float) -> None:
    edges = summary["margin_edge"].values
    _points(axes, np.arange(len(edges) - 1) + aside, summary, "by_margin", label=label, **look)
    words = [f"< {edges[1]:g}"] + [f"{low:g}..{high:g}" for low, high in pairwise(edges[1:])]
    axes.set_xticks(range(len(words)), words, rotation=40, ha="right", fontsize=7)


def _from_far(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the shares from far along wrong selections against R, and beside the last of each size the predicted one."""
    sizes = sorted({(int(one.attrs["n"]), int(one.attrs["d"])) for one in runs})
    for (n, d), colour in zip(sizes, palette.ramp(len(sizes)), strict=True):
        own = sorted(
            (one for one in runs if (one.attrs["n"], one.attrs["d"]) == (n, d)), key=lambda one: one.attrs["R"]
        )
        R = np.array([one.attrs["R"] for one in own])
        mean, low, high = (np.array([float(one[f"optimal{part}"]) for one in own]) for part in ("", "_low", "_high"))
        errors = np.clip([mean - low, high - mean], 0, None)
        axes.errorbar(
            R, mean, errors, color=colour, marker="o", markersize=4, elinewidth=0.8, label=f"$n = {n}$, $d = {d}$"
        )
        axes.plot(1.6 * R[-1], 1 - float(own[-1]["elsewhere"]), "x", color=colour)


def _by_spread(axes: Axes, summary: xarray.Dataset) -> None:
    numbers = np.unique(summary["n"].values)
    for n, colour in zip(numbers, palette.ramp(len(numbers)), strict=True):
        one = summary.isel(run=(summary["n"] == n).values).sortby("spread")
        marker = "o" if one.sizes["run"] > 1 else "D"
        _points(axes, one["spread"].values, one, "optimal", color=colour, marker=marker, label=f"$n = {n}$")
