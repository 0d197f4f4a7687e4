"""The figure of the probability of global convergence: W solid, (K, Q) dashed, against d."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_MARKERS = "os^Dv"


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw two panels, over the number of inputs n and over the number of tokens T.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.4)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, letter, along, fixed in zip(panels, "ab", "nT", "Tn", strict=True):
            smallest = int(summaries["W"][fixed].min())
            for weights, summary in summaries.items():
                _curves(axes, summary.isel(run=(summary[fixed] == smallest).values), along, weights)
            d = np.unique(summaries["W"]["d"].values)
            axes.set(title=f"({letter}) ${fixed} = {smallest}$", xlabel="dimension $d$", xscale="log", ylim=(0, 1.03))
            axes.set_xticks(d, [f"{size}" for size in d])
            axes.minorticks_off()
            sizes = np.unique(summaries["W"][along].values[summaries["W"][fixed].values == smallest])
            colours = {f"${along} = {size}$": colour for size, colour in _colours(sizes).items()}
            page.key(axes, colours, {page.RUNS[run]: palette.DASHES[run] for run in summaries}, loc="lower right")
        panels[0].set_ylabel("probability of the optimal tokens")
        seeds = {w: np.unique(one["seeds"].values) for w, one in summaries.items()}
        said = "; ".join(f"{page.RUNS[w]} {_range(counts)} seeds a point" for w, counts in seeds.items())
        page.add_counts(
            figure, summaries, f"Bars: 95 % intervals ({said}); ambiguous runs, not saturated, count as not."
        )
    return figure


def _range(counts: np.ndarray) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _colours(sizes: np.ndarray) -> dict[int, str]:
    return dict(zip(sizes.tolist(), palette.ramp(len(sizes)), strict=True))


def _curves(axes: Axes, summary: xarray.Dataset, along: str, weights: str) -> None:
    shift = 0.985 if weights == "W" else 1.015  # So that bars do not cover each other.
    sizes = np.unique(summary[along].values)
    for (size, colour), marker in zip(_colours(sizes).items(), cycle(_MARKERS), strict=False):
        one = summary.isel(run=(summary[along] == size).values).sortby("d")
        mean = one["global"].values
        errors = np.clip([mean - one["global_low"].values, one["global_high"].values - mean], 0, None)
        axes.errorbar(
            one["d"].values * shift,
            mean,
            errors,
            color=colour,
            marker=marker,
            markersize=4,
            elinewidth=0.8,
            markerfacecolor=colour if weights == "W" else "white",
            linestyle=palette.DASHES[weights],
        )
