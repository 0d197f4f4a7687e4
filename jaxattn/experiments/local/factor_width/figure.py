"""The figure of the factors' width: saturation, what is reached, and where the bound on the rank binds."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxattn.study.style import page, palette

_SOLUTIONS = {
    "nuclear": ("nuclear solution", palette.NUCLEAR, "s", "--"),
    "bounded": ("best of rank $m$ found", palette.AMBER, "^", ":"),
    "nearest": ("stationary point reached", palette.TEAL, "o", "-"),
}
# What certified norms that are the same may still differ by, and less is drawn as.
_ROUNDING = 1e-12


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw three panels: the largest probability along the runs, final correlations over m, excess over rank - m.

    Args:
        summaries: of `claims.summarize`, by increasing width.
    """
    with page.style():
        figure = page.full(3.4)
        saturation, reached, binding = figure.subplots(1, 3)
        shades = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(summaries)))
        for (run, one), shade in zip(summaries.items(), shades, strict=True):
            curve = (one[part].values for part in ("snapshot", "probability", "probability_low", "probability_high"))
            page.band(saturation, *curve, color=tuple(shade), label=f"${run}$")
            _excess(binding, one, tuple(shade), f"${run}$")
        saturation.set(title="(a) saturation", xlabel="step", ylabel="mean largest probability", xscale="log")
        saturation.legend(loc="lower right")
        _reached(reached, list(summaries.values()))
        binding.axvline(0.5, color=palette.NOTE, linewidth=0.8)
        binding.set(
            title="(c) where the bound binds",
            xlabel="rank of the nuclear solution $-\\ m$",
            ylabel="relative excess of the norm",
            yscale="log",
        )
        binding.xaxis.set_major_locator(MaxNLocator(integer=True))
        binding.legend(loc="center left")
        remark = (
            "Means over kept seeds with 95 % bootstrap intervals. (c): every seed, the rank jittered by width; below "
            f"{_ROUNDING:g} drawn as that."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _reached(axes: Axes, summaries: list[xarray.Dataset]) -> None:
    x = np.arange(len(summaries))
    for name, (label, colour, marker, dashes) in _SOLUTIONS.items():
        ends = [one.sel(solution=name) for one in summaries]
        mean, low, high = (
            np.array([float(one[f"correlation{part}"]) for one in ends]) for part in ("", "_low", "_high")
        )
        errors = np.clip([mean - low, high - mean], 0, None)
        look = {"color": colour, "marker": marker, "markersize": 4, "elinewidth": 0.8, "linestyle": dashes}
        axes.errorbar(x, mean, errors, label=label, **look)
    axes.set_xticks(x, [str(one.attrs["width"]) for one in summaries])
    axes.set(title="(b) at the last step", xlabel="columns $m$ of $K$ and $Q$", ylabel="correlation", ylim=(None, 1.02))
    axes.legend(loc="lower right")


def _excess(axes: Axes, one: xarray.Dataset, colour: tuple[float, ...], label: str) -> None:
    above = one["rank"].values - one.attrs["width"]
    jitter = np.linspace(-0.25, 0.25, len(above))
    axes.scatter(above + jitter, np.maximum(one["excess"].values, _ROUNDING), s=8, color=colour, label=label)
