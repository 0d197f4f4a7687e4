"""The figure of the grids: at which tokens the starts of one problem end, for one and for two inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.study.style import page, palette

# Of the locally optimal choices, in order; of prompts that stay at a point; and of ends elsewhere.
_COLOURS, _RESTING, _ELSEWHERE = palette.OTHERS[:5], palette.EXCLUDED, palette.INK
_MARKERS = ("o", "s")


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw for each number of inputs the problem with most starts, and in the titles the shares of all problems.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(4.4)
        panels = figure.subplots(1, 2)
        for axes, inputs, letter in zip(panels, (1, 2), "ab", strict=True):
            runs = [one for one in summaries.values() if one.attrs["inputs"] == inputs]
            _map(axes, max(runs, key=lambda one: one.sizes["start"]))
            judged = max(runs, key=lambda one: one.attrs["attempted"])
            words = "One input" if inputs == 1 else "Two inputs"
            arrived, rests = float(judged["arrived"]), float(judged["resting"])
            title = f"({letter}) {words}: {arrived:.1%} of all starts end at"
            title += f"\nlocally optimal solutions, {rests:.1%} at a point"
            axes.set_title(title)
        counted = [one for one in summaries.values() if one.attrs["attempted"] > 1]
        kept = "; ".join(
            f"{one.attrs['run']}: {one.attrs['kept']} of {one.attrs['attempted']} problems kept" for one in counted
        )
        remark = (
            "Arrows: certified solutions of all locally optimal choices. Grey: stays at a point; black: elsewhere. "
            "Tokens are scaled to the panel (squares: second input; the darker, the higher the score). "
            f"Shares over drawn problems ({kept})."
        )
        page.note(figure, remark)
    return figure


def _map(axes: Axes, one: xarray.Dataset) -> None:
    """Colour every start by the choice of tokens at whose solution it ends."""
    starts, end = one["p_initial"].values, one["end"].values
    side, reach = int(np.sqrt(len(starts))), float(np.abs(starts).max())
    optima = np.flatnonzero(one["locally"].values)
    number = np.full(len(end), len(optima) + 1)
    for place, choice in enumerate(optima):
        number[end == choice] = place
    number[end == -1] = len(optima)
    colours = [*(_COLOURS[k % len(_COLOURS)] for k in range(len(optima))), _RESTING, _ELSEWHERE]
    half = reach * side / (side - 1)
    axes.imshow(
        number.reshape(side, side),
        origin="lower",
        extent=(-half, half, -half, half),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        interpolation="nearest",
        alpha=0.6,
    )
    for choice, colour in zip(optima, colours, strict=False):
        ray = one["ray"].values[choice]
        tip = 0.97 * half * ray / np.linalg.norm(ray)
        look = {"arrowstyle": "simple,tail_width=0.2,head_width=0.7,head_length=0.7", "mutation_scale": 14}
        look |= {"facecolor": colour, "edgecolor": "black", "linewidth": 0.7}
        axes.annotate("", xy=tuple(tip), xytext=(0, 0), arrowprops=look)
    X = one["X"].values * 0.75 * half / np.abs(one["X"].values).max()
    for tokens, scores, marker in zip(X, one["score"].values, _MARKERS, strict=False):
        axes.scatter(
            *tokens.T, c=scores, cmap="Greys", marker=marker, s=34, edgecolors="black", linewidths=0.8, zorder=5
        )
    names = ["token " + " and ".join(str(t + 1) for t in one["alpha"].values[choice]) for choice in optima]
    key = [Patch(color=colour, alpha=0.6, label=name) for colour, name in zip(colours, names, strict=False)]
    look = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2, "frameon": False}
    axes.legend(handles=key, title="ends at", columnspacing=1.0, handlelength=1.4, **look)
    axes.set(xlim=(-half, half), ylim=(-half, half), aspect="equal", xlabel="first coordinate of the start")
    axes.set_ylabel("second coordinate")
