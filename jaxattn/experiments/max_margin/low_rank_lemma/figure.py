"""The low-rank figure: singular values beyond the n-th, and what of W lies outside the span of the queries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxattn.study.style import page, palette

# Below the rounding of a double: exact zeros are drawn here.
_FLOOR = 1e-18
_MARKERS = ("o", "^", "s")


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the singular values (a) and the part outside the queries' span (b), by norm and by solver.

    Args:
        summaries: of this package's solvers and of the witnesses, as `summarize` returns them.
    """
    with page.style():
        figure = page.full(3.4)
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        places = []
        for k, summary in enumerate(summaries.values()):
            name = f"{summary.attrs['solver'] or 'jaxattn'}, $d = {int(summary['d'])}$"
            for norm in map(str, summary["norm"].values):
                _spectrum(left, summary.sel(norm=norm), norm, k, f"{page.NORMS[norm]}, {name}")
                places.append(f"{page.NORMS[norm].split()[0]}\n{name}")
                _outside(right, summary.sel(norm=norm), norm, k, len(places) - 1)
        n = next(iter(summaries.values())).attrs["n"]
        left.axvline(n + 0.5, color=palette.GUIDE, linewidth=0.9, linestyle=":", zorder=1)
        left.annotate(f"$n = {n}$", (n + 0.5, 1e-3), xytext=(4, 0), textcoords="offset points", color=palette.NOTE)
        left.set(title="(a) singular values", xlabel="number $k$", ylabel=r"$\sigma_k / \sigma_1$")
        right.set(title="(b) rows outside the span of the queries")
        right.set_ylabel(r"$\|W (I - P_Z)\|_F \; / \; \|W\|_F$")
        right.set_xticks(range(len(places)), places, fontsize=7)
        for axes in (left, right):
            axes.set(yscale="log", ylim=(_FLOOR, 5))
            axes.axhline(np.finfo(float).eps, color=palette.GUIDE, linewidth=0.9, linestyle="--", zorder=1)
        right.annotate(
            "machine epsilon", (-0.4, np.finfo(float).eps), xytext=(0, -9), textcoords="offset points", fontsize=7
        )
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        left.legend(loc="upper right")
        page.add_counts(
            figure,
            summaries,
            "(a) Medians with the whole range of the kept problems; (b) every one.",
            counted="problems",
        )
    return figure


def _spectrum(axes: Axes, one: xarray.Dataset, norm: str, k: int, label: str) -> None:
    values = np.maximum(one["singular_values"].values, _FLOOR)
    if not values.size:
        return
    number = np.arange(1, values.shape[1] + 1)
    colour = palette.COLOURS[norm]
    axes.plot(
        number,
        np.median(values, axis=0),
        color=colour,
        linestyle=palette.DASHES[norm],
        marker=_MARKERS[k % len(_MARKERS)],
        markersize=4,
        linewidth=1,
        label=label,
        markerfacecolor=colour if k == 0 else "white",
    )
    axes.fill_between(number, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)


def _outside(axes: Axes, one: xarray.Dataset, norm: str, k: int, place: int) -> None:
    values = np.maximum(one["outside"].values, _FLOOR)
    across = place + np.linspace(-0.25, 0.25, values.size)
    filled = palette.COLOURS[norm] if k == 0 else "none"
    axes.scatter(across, values, s=9, marker=_MARKERS[k % len(_MARKERS)], c=filled, edgecolors=palette.COLOURS[norm])
