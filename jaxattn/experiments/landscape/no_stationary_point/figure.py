"""The no-stationary-point figure: how the gradient is aligned, and a landscape with a finite local minimum."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from scipy.interpolate import RegularGridInterpolator

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_LOOKS = {"equal": (palette.TEAL, "o", "equal scores"), "free": (palette.WINE, "^", "scores as drawn")}
# From where descent is drawn: the same points in both landscapes.
_STARTS = ((-5.5, 2.6), (-4.0, -2.6), (-1.2, 1.6), (0.2, -2.4))
# The length of their steps, and the most that are drawn.
_STEP, _MOST_STEPS = 0.05, 400
# Ratios to the bound nearer to 1 are rounding.
_ROUNDING = 1e-9


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the cosines at all weights, the smallest of each problem, and the landscapes of the constructed instance."""
    drawn = {name: summaries[name] for name in _LOOKS}
    with page.style():
        figure = page.full(6.0)
        (left, right), (trap, equal) = figure.subplots(2, 2)
        _shares(left, drawn)
        _smallest(right, drawn)
        risks = [run["trap_risk"].values for run in drawn.values()]
        # One scale for both landscapes.
        levels = np.linspace(min(map(np.min, risks)), max(map(np.max, risks)), 21)
        _landscape(trap, drawn["free"], "(c) unequal scores", levels)
        filled = _landscape(equal, drawn["equal"], "(d) equal scores", levels)
        bar = figure.colorbar(filled, ax=[trap, equal], label="risk", pad=0.02, aspect=25, format="%.2f")
        bar.set_ticks(list(np.linspace(levels[0], levels[-1], 5)))
        weights = int(drawn["equal"].attrs["draws"])
        page.add_counts(
            figure,
            {_LOOKS[name][2]: one for name, one in drawn.items()},
            f"{weights:,} weights a problem. (c), (d): the risk of the constructed instance over $Wz$, the same query "
            r"for all inputs; shaded where $-\langle\nabla L, W_{mm}\rangle < 0$; lines: descent (gradient flow) from "
            "the same four points; the arrow on the right points along $W_{mm}z$.",
            counted="problems",
        )
    return figure


def _shares(axes: Axes, drawn: Datasets) -> None:
    """Draw the share of weights below every cosine: on a log axis rare ones show, and uneven bins do not."""
    said = []
    for name, one in drawn.items():
        colour, _, label = _LOOKS[name]
        below = one["histogram"].values.sum(axis=0).cumsum()
        edges, there = one["bin"].values + (one["bin"].values[1] - one["bin"].values[0]) / 2, below > 0
        axes.plot(edges[there], below[there] / below[-1], color=colour, label=label)
        negative = float(one["mean_negative"])
        said.append(f"{100 * negative:.2g} % with {label}" if negative else f"none with {label}")
        if negative:
            axes.plot(0, negative, "o", color=colour, markersize=4)
            axes.annotate(
                f"{100 * negative:.2g} % negative", (0, negative), (-6, 4), textcoords="offset points", ha="right"
            )
    axes.axvline(0, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set(title=f"(a) negative cosines: {', '.join(said)}", yscale="log", xlim=(-1, 1))
    axes.set(xticks=[-1, -0.5, 0, 0.5, 1])
    axes.set(xlabel=r"cosine of $-\nabla L(W)$ and $W_{mm}$", ylabel="share of weights with a smaller cosine")
    axes.legend(loc="best")


def _smallest(axes: Axes, drawn: Datasets) -> None:
    for name, one in drawn.items():
        colour, marker, label = _LOOKS[name]
        axes.scatter(one["bound"], one["least"], s=12, color=colour, marker=marker, label=label)
    ends = np.array([0, 1.05 * max(float(one["bound"].max()) for one in drawn.values())])
    axes.plot(ends, ends, color=palette.INK, linewidth=0.7, label="the bound itself")
    axes.axhline(0, color=palette.INK, linewidth=0.7, linestyle=":")
    equal, free = drawn["equal"], drawn["free"]
    kept = int((equal["least"] >= equal["bound"] * (1 - _ROUNDING)).sum())
    turned = int((free["least"] < 0).sum())
    axes.set(
        title=f"(b) equal scores: {kept} of {equal.sizes['seed']} above the bound; "
        f"as drawn: {turned} of {free.sizes['seed']} negative",
        xlabel="the proof's bound for equal scores",
        ylabel="smallest cosine of a problem",
    )
    axes.legend(loc="best")


def _landscape(axes: Axes, one: xarray.Dataset, title: str, levels: np.ndarray) -> QuadContourSet:
    first, second, risk = one["first"].values, one["second"].values, one["trap_risk"].values
    filled = axes.contourf(first, second, risk, levels=levels, cmap="Greys", vmax=1.5 * levels[-1] - 0.5 * levels[0])
    axes.contour(first, second, risk, levels=levels, colors="white", linewidths=0.4)
    axes.contourf(first, second, one["trap_alignment"], levels=[-1.01, 0.0], colors=[palette.WINE], alpha=0.2)
    for start in _STARTS:
        path = _descended(one, np.array(start))
        axes.plot(*path.T, color=palette.TEAL, linewidth=1.2)
        if len(path) > 2:
            middle = len(path) // 2
            arrow = {"arrowstyle": "-|>", "color": palette.TEAL}
            axes.annotate("", path[middle], path[middle - 1], arrowprops=arrow)
    axes.plot(*np.transpose(_STARTS), ".", color=palette.TEAL)
    is_low = one["trap_least"].values > 0
    for place, low in zip(one["trap_place"].values, is_low, strict=True):
        axes.plot(place, 0, "o" if low else "X", color=palette.INK, markersize=5, zorder=5)
        # Minima are named below, saddles above, so that neighbours do not meet.
        name, lift, side = ("local minimum", -6, "top") if low else ("saddle", 6, "bottom")
        axes.annotate(name, (place, 0), (0, lift), textcoords="offset points", ha="left", va=side, zorder=5)
    start = np.array([0.8, -2.5])
    end = start + 1.8 * one["trap_solution"].values
    axes.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "->", "linewidth": 1.2})
    minima = int(is_low.sum())
    found = f"{minima or 'no'} local minim{'um' if minima == 1 else 'a'}"
    axes.set(title=f"{title}: {found}", xlabel="first coordinate of $Wz$", ylabel="second coordinate, the scores'")
    axes.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
    return filled


def _descended(one: xarray.Dataset, start: np.ndarray) -> np.ndarray:
    """Follow the negative gradient of the risk on the grid, in steps of equal length, while the risk falls."""
    grid = one["second"].values, one["first"].values
    risk = one["trap_risk"].values
    values = np.stack([risk, *np.gradient(risk, *grid)], axis=-1)
    read = RegularGridInterpolator(grid, values, bounds_error=False, fill_value=np.inf)
    path, (height, *slope) = [start], read(start[::-1])[0]
    for _ in range(_MOST_STEPS):
        length = np.hypot(*slope)
        if length == 0:
            break
        following = path[-1] - _STEP * np.array(slope[::-1]) / length
        lower, *slope = read(following[::-1])[0]
        if not lower < height:
            break
        path.append(following)
        height = lower
    return np.array(path)
