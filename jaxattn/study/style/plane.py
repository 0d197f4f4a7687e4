"""The plane of the trajectory figures: tokens, paths and rays of every input."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from jaxattn.study.style import palette

# One colour, token marker and line style an input, so that the inputs are told apart in grey too.
_INPUTS = (
    {"colour": palette.TEAL, "marker": "o", "dashes": "-"},
    {"colour": palette.WINE, "marker": "s", "dashes": "--"},
)

# Names of dots that are nearer, as a share of the panel's half width, would overlap.
_APART = 0.16


def plane(
    axes: Axes,
    X: Float[np.ndarray, "n T 2"],
    selected: Int[np.ndarray, " n"],
    paths: Float[np.ndarray, "n snapshots 2"],
    rays: Float[np.ndarray, "n 2"] | None = None,
    marked: Mapping[int, str] | None = None,
) -> None:
    """Draw tokens, the selected ones as stars, paths, rays, and lines that separate each star from its nearest rival.

    A path of `W(k) z_i` is scaled by its own largest length to the panel, since only its direction is compared. Rays
    are the directions `W_svm z_i`. At marked snapshots there is a dot on every path, named on the first one.

    Example:
        >>> axes = Figure().subplots()
        >>> plots.plane(axes, np.eye(2)[None], np.array([0]), np.ones((1, 5, 2)))
    """
    reach = 1.25 * float(np.abs(X).max())
    for i, look in zip(range(len(X)), cycle(_INPUTS), strict=False):
        star = int(selected[i])
        others = np.delete(X[i], star, axis=0)
        axes.scatter(*others.T, marker=look["marker"], s=26, facecolors="white", edgecolors=look["colour"], zorder=3)
        axes.scatter(*X[i, star], marker="*", s=130, color=look["colour"], edgecolors="black", linewidths=0.6, zorder=4)
        path = np.concatenate([np.zeros((1, 2)), paths[i]]) * (0.85 * reach / np.linalg.norm(paths[i], axis=1).max())
        if rays is not None:
            direction = rays[i] / np.linalg.norm(rays[i])
            arrow = {"arrowstyle": "-|>", "color": palette.GUIDE, "linewidth": 1.2, "linestyle": ":"}
            axes.annotate("", xy=tuple(0.98 * reach * direction), xytext=(0, 0), arrowprops=arrow, zorder=2)
            _separate(axes, X[i, star], others, direction, reach, look)
        axes.plot(*path.T, color=look["colour"], linestyle=look["dashes"], label=f"path of input {i + 1}", zorder=5)
        dots = path[[1 + snapshot for snapshot in marked or ()]]
        axes.plot(*dots.T, ".", color="black", markersize=4.5, zorder=6)
        if i == 0:
            others = paths[1:, -1] / np.linalg.norm(paths[1:, -1], axis=1, keepdims=True)
            _name(axes, dots, [*(marked or {}).values()], reach, away=paths[0, -1], of=others.sum(axis=0))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="first coordinate")
    axes.set_ylabel("second coordinate")


def _name(axes: Axes, dots: np.ndarray, names: list[str], reach: float, away: np.ndarray, of: np.ndarray) -> None:
    """Write names beside dots, the last first, unless two would overlap, on the side of `away` on which `of` is not."""
    normal = np.array([-away[1], away[0]]) / np.linalg.norm(away)
    side = -normal if normal @ of > 0 else normal
    look = {
        "ha": ("right", "center", "left")[1 + round(side[0])],
        "va": ("top", "center", "bottom")[1 + round(side[1])],
    }
    placed: list[np.ndarray] = []
    for dot, name in reversed([*zip(dots, names, strict=True)]):
        if all(np.abs(dot - other).max() > _APART * reach for other in placed):
            axes.annotate(name, dot, tuple(5 * side), textcoords="offset points", fontsize=7, zorder=6, **look)
            placed.append(dot)


def _separate(
    axes: Axes, star: np.ndarray, others: np.ndarray, direction: np.ndarray, reach: float, look: dict[str, str]
) -> None:
    """Draw the line halfway between the star and its nearest rival along the ray."""
    offset = (star @ direction + (others @ direction).max()) / 2
    along = np.array([-direction[1], direction[0]])
    ends = offset * direction + np.outer([-3 * reach, 3 * reach], along)
    axes.plot(*ends.T, color=look["colour"], linewidth=0.7, linestyle=look["dashes"], alpha=0.6, zorder=1)
