"""The no-stationary-point figure: how the gradient is aligned, and a landscape with a finite local minimum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LOOKS = {"equal": (palette.TEAL, "o", "equal scores"), "free": (palette.WINE, "^", "scores as drawn")}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the cosines at all weights, the smallest of each problem, and the landscapes of the instance made by hand.

    Args:
        summaries: of `claims.summarize`.
    """
    drawn = {name: summaries[name] for name in _LOOKS}
    with page.style():
        figure = page.full(6.2)
        (left, right), (trap, equal) = figure.subplots(2, 2)
        for name, one in drawn.items():
            colour, marker, label = _LOOKS[name]
            counts = one["histogram"].values.sum(axis=0)
            left.step(one["bin"], counts / counts.sum(), where="mid", color=colour, label=label)
            right.scatter(one["bound"], one["least"], s=12, color=colour, marker=marker, label=label)
        left.axvline(0, color="black", linewidth=0.7, linestyle=":")
        left.set(title="(a) all drawn weights", xlabel=r"cosine of $-\nabla L(W)$ and $W_{mm}$", ylabel="share")
        ends = np.array([0, 1.05 * max(float(one["bound"].max()) for one in drawn.values())])
        right.plot(ends, ends, color="black", linewidth=0.7, label="the bound itself")
        right.axhline(0, color="black", linewidth=0.7, linestyle=":")
        right.set(title="(b) the smallest of each problem", xlabel="bound for equal scores", ylabel="smallest cosine")
        for axes in (left, right):
            axes.legend()
        _landscape(trap, summaries["trap"], "(c) an instance with unequal scores")
        _landscape(equal, summaries["trap, equal"], "(d) the same with equal scores")
        trap.legend(loc="lower right", frameon=True, facecolor="white", framealpha=0.9)
        weights = int(drawn["equal"].attrs["draws"])
        page.add_counts(
            figure,
            {_LOOKS[name][2]: one for name, one in drawn.items()},
            f"{weights} weights a problem. (c), (d): contours of the risk over $Wz$, the same query for all inputs; "
            r"shaded where $-\langle\nabla L, W_{mm}\rangle < 0$; the arrow points along $W_{mm}z$.",
            counted="problems",
        )
    return figure


def _landscape(axes: Axes, one: xarray.Dataset, title: str) -> None:
    first, second = one["first"].values, one["second"].values
    axes.contour(first, second, one["risk"], levels=30, cmap="viridis", linewidths=0.7)
    axes.contourf(first, second, one["alignment"], levels=[-1.01, 0.0], colors=[palette.WINE], alpha=0.2)
    for name, marker, chosen in (("local minimum", "o", one["least"] > 0), ("saddle", "X", one["least"] <= 0)):
        places = one["place"].values[chosen.values]
        if len(places):
            axes.plot(places, 0 * places, marker, color="black", markersize=6, linestyle="none", label=name)
    x, y = 1.8 * one["solution"].values
    axes.annotate(
        "", (0.4 + x, 2.2 + y), (0.4, 2.2), arrowprops={"arrowstyle": "->", "color": "black", "linewidth": 1.2}
    )
    axes.set(title=title, xlabel="first coordinate of $Wz$", ylabel="second, the scores'")
