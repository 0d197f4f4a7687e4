"""The no-stationary-point figure: how the gradient is aligned, and a landscape with a finite local minimum."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_LOOKS = {"equal": (palette.TEAL, "o", "equal scores"), "free": (palette.WINE, "^", "scores as drawn")}
# From where descent is drawn: the same points in both landscapes.
_STARTS = ((-5.5, 2.6), (-4.0, -2.6), (-1.2, 1.6), (0.2, -2.4))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the cosines at all weights, the smallest of each problem, and the landscapes of the constructed instance."""
    equal, free = (summaries[name] for name in _LOOKS)
    with page.style():
        figure = page.full(6.4)
        verdicts = {name: judgements[f"no-stationary-point:{name}"].verdict for name in ("equal", "finite")}
        figure.suptitle(
            f"With equal scores there is no finite stationary point: {verdicts['equal']}.\n"
            f"Without them a local minimum can trap descent: {verdicts['finite']}"
        )
        (left, right), landscapes = figure.subplots(2, 2)
        for name, (colour, marker, label) in _LOOKS.items():
            _shares(left, summaries[name], colour, label)
            right.scatter(
                summaries[name]["bound"], summaries[name]["least"], s=12, c=colour, marker=marker, label=label
            )
        negative = [f"{100 * float(run['mean_negative']):.2g} %" for run in (equal, free)]
        at = (0, float(free["mean_negative"]))
        left.annotate(f"{negative[1]} negative", at, (-6, 4), textcoords="offset points", ha="right")
        left.axvline(0, color=palette.INK, linewidth=0.7, linestyle=":")
        left.set(title=f"(a) negative cosines: {negative[0]} with equal scores, {negative[1]} with scores as drawn")
        left.set(xlim=(-1, 1), xticks=[-1, -0.5, 0, 0.5, 1], yscale="log")
        left.set(xlabel=r"cosine of $-\nabla L(W)$ and $W_{mm}$", ylabel="share of weights with a smaller cosine")
        ends = np.array([0, 1.05 * max(float(run["bound"].max()) for run in (equal, free))])
        right.plot(ends, ends, color=palette.INK, linewidth=0.7, label="the bound itself")
        right.axhline(0, color=palette.INK, linewidth=0.7, linestyle=":")
        ratio, turns = float((equal["least"] / equal["bound"]).min()), float(free["turns_away"])
        right.set_title(f"(b) equal scores: {ratio:.4g} times the bound or more; as drawn: {turns:.0%} negative")
        right.set(xlabel="the proof's bound for equal scores", ylabel="smallest cosine per problem")
        for axes in (left, right):
            axes.legend(loc="best")
        # One scale for both landscapes.
        risks = np.stack([run["trap_risk"].values for run in (equal, free)])
        levels = np.linspace(risks.min(), risks.max(), 21)
        _landscape(landscapes[0], free, levels)
        filled = _landscape(landscapes[1], equal, levels)
        minima = [int((run["trap_least"] > 0).sum()) for run in (free, equal)]
        landscapes[0].set_title(f"(c) unequal scores, local minima: {minima[0]}")
        landscapes[1].set_title(f"(d) equal scores, local minima: {minima[1]}")
        bar = figure.colorbar(filled, ax=[*landscapes], label="risk", pad=0.02, aspect=25, format="%.2f")
        bar.set_ticks(list(np.linspace(levels[0], levels[-1], 5)))
        page.add_counts(
            figure,
            {label: summaries[name] for name, (_, _, label) in _LOOKS.items()},
            f"{int(equal.attrs['draws']):,} weights per problem. (c), (d): the risk of the constructed instance over "
            r"$Wz$, the same query for all inputs; shaded where $-\langle\nabla L, W_{mm}\rangle < 0$; lines: descent "
            "(gradient flow) from the same four points, which leaves the frame where its norm diverges; the second "
            "coordinate of a token is its score; the arrow on the right points along $W_{mm}z$.",
            counted="problems",
        )
    return figure


def _shares(axes: Axes, run: xarray.Dataset, colour: str, label: str) -> None:
    """Draw the share of weights below every cosine: on a log axis rare ones show, and uneven bins do not."""
    below = run["histogram"].values.sum(axis=0).cumsum()
    edges, there = run["bin"].values + (run["bin"].values[1] - run["bin"].values[0]) / 2, below > 0
    axes.plot(edges[there], below[there] / below[-1], color=colour, label=label)
    if run["mean_negative"] > 0:
        axes.plot(0, run["mean_negative"], "o", color=colour, markersize=4)


def _landscape(axes: Axes, run: xarray.Dataset, levels: np.ndarray) -> QuadContourSet:
    """Draw the risk, paths of descent, and the stationary points."""
    first, second, risk = run["first"].values, run["second"].values, run["trap_risk"].values
    filled = axes.contourf(first, second, risk, levels=levels, cmap="Greys", vmax=1.5 * levels[-1] - 0.5 * levels[0])
    axes.contour(first, second, risk, levels=levels, colors="white", linewidths=0.4)
    axes.contourf(first, second, run["trap_alignment"], levels=[-1.01, 0.0], colors=[palette.WINE], alpha=0.2)
    upwards, sidewards = np.gradient(risk, second, first)
    axes.streamplot(
        first,
        second,
        -sidewards,
        -upwards,
        start_points=_STARTS,
        integration_direction="forward",
        broken_streamlines=False,
        # Without gaps at the starts, and also paths that soon leave the panel.
        density=6,
        minlength=0.01,
        color=palette.TEAL,
        linewidth=1.2,
    )
    axes.plot(*np.transpose(_STARTS), ".", color=palette.TEAL)
    for place, is_minimum in zip(run["trap_place"].values, run["trap_least"].values > 0, strict=True):
        axes.plot(place, 0, "o" if is_minimum else "X", color=palette.INK, markersize=5, zorder=5)
        # Minima are named below, saddles above, so that neighbours do not meet.
        name, lift, side = ("local minimum", -6, "top") if is_minimum else ("saddle", 6, "bottom")
        axes.annotate(name, (place, 0), (0, lift), textcoords="offset points", ha="left", va=side, zorder=5)
    start = np.array([0.8, -2.5])
    end = start + 1.8 * run["trap_solution"].values
    axes.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "->", "linewidth": 1.2})
    axes.set(xlabel="first coordinate of $Wz$", ylabel="second coordinate of $Wz$")
    axes.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
    return filled
