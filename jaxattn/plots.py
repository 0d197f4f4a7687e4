"""Plots of your own runs: trajectories in the plane, and means over seeds with their intervals.

Needs Matplotlib. Nothing here opens a window: each function returns a figure, or draws into axes of yours.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, tokens
from jaxattn.attention import Weights
from jaxattn.descent import Run
from jaxattn.problem import Problem
from jaxattn.study.statistics import bootstrap
from jaxattn.study.style import page
from jaxattn.svm import Solution

__all__ = ["bands", "plane", "trajectory"]

# One colour, token marker and line style an input, so that the inputs are told apart in grey too.
_INPUTS = ({"colour": "#0072B2", "marker": "o", "dashes": "-"}, {"colour": "#D55E00", "marker": "s", "dashes": "--"})


def trajectory(run: Run, problem: Problem, solution: Solution | None = None) -> Figure:
    """Draw the paths of `W(k) z_i` along the snapshots of one run in the plane, and the rays of a solution.

    After figure 1 of 2308.16898.

    Args:
        run: of `descent.train` with snapshots, on a problem of d = 2.
        problem: the one it was trained on.
        solution: of the max-margin problem that selects the same tokens; no rays are drawn if None.

    Raises:
        ValueError: a problem of another dimension, or a run without snapshots.

    Example:
        >>> run = descent.train(jnp.zeros((2, 2)), planar, steps=50, snapshots=range(1, 51))
        >>> figure = plots.trajectory(run, planar, svm.solve(svm.token_constraints(planar, tokens.optimal(planar))))
    """
    if problem.d != 2:
        raise ValueError(f"problem: expected d = 2, which can be drawn, found d = {problem.d}")
    W = np.asarray(attention.matrix(run.snapshots))
    if len(W) == 0:
        raise ValueError("run: expected snapshots, found none; train with snapshots=range(1, steps + 1)")
    paths = np.einsum("kde,ne->nkd", W, np.asarray(problem.Z))
    rays = None if solution is None else np.asarray(problem.Z) @ np.asarray(solution.W).T
    with page.style():
        figure = page.new_figure(3.3, 3.3)
        axes = figure.subplots()
        plane(axes, np.asarray(problem.X), _selected(run.weights, problem), paths, rays)
        axes.legend(loc="best")
    return figure


def plane(
    axes: Axes,
    X: Float[np.ndarray, "n T 2"],
    selected: Int[np.ndarray, " n"],
    paths: Float[np.ndarray, "n snapshots 2"],
    rays: Float[np.ndarray, "n 2"] | None = None,
) -> None:
    """Draw tokens, the selected ones as stars, paths, rays, and lines that separate each star from its nearest rival.

    A path is scaled by its own largest length to the panel, since only its direction is compared.

    Args:
        axes: where to draw.
        X: tokens of every input.
        selected: which of them is selected.
        paths: of `W(k) z_i`.
        rays: directions of the solution, `W_svm z_i`; none are drawn if None.

    Example:
        >>> axes = page.new_figure(3.3, 3.3).subplots()
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
            arrow = {"arrowstyle": "-|>", "color": "#777777", "linewidth": 1.2, "linestyle": ":"}
            axes.annotate("", xy=tuple(0.98 * reach * direction), xytext=(0, 0), arrowprops=arrow, zorder=2)
            _separate(axes, X[i, star], others, direction, reach, look)
        axes.plot(*path.T, color=look["colour"], linestyle=look["dashes"], label=f"path of input {i + 1}", zorder=5)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="first coordinate")
    axes.set_ylabel("second coordinate")


def bands(
    axes: Axes,
    x: Any,
    values: Float[np.ndarray, "seeds points"],
    key: PRNGKeyArray,
    color: str = "#0072B2",
    **look: Any,
) -> None:
    """Draw the mean over seeds as a curve, and its 95 % bootstrap interval as a band.

    Args:
        axes: where to draw.
        x: of the points.
        values: one curve a seed.
        key: of the bootstrap.
        color: of curve and band.
        look: of the curve, as `Axes.plot` takes it: label, linestyle.

    Raises:
        ValueError: no seeds, or a value that is not finite.

    Example:
        >>> axes = page.new_figure(3.3, 2.5).subplots()
        >>> plots.bands(axes, np.arange(3), np.random.default_rng(0).normal(size=(20, 3)), key, label="1 - cos")
    """
    estimate = bootstrap(np.asarray(values), key)
    page.band(axes, x, estimate.mean, estimate.low, estimate.high, color=color, **look)


def _selected(weights: Weights, problem: Problem) -> np.ndarray:
    return np.asarray(tokens.selected(weights, problem))


def _separate(
    axes: Axes, star: np.ndarray, others: np.ndarray, direction: np.ndarray, reach: float, look: dict[str, str]
) -> None:
    """Draw the line halfway between the star and its nearest rival along the ray."""
    offset = (star @ direction + (others @ direction).max()) / 2
    along = np.array([-direction[1], direction[0]])
    ends = offset * direction + np.outer([-3 * reach, 3 * reach], along)
    axes.plot(*ends.T, color=look["colour"], linewidth=0.7, linestyle=look["dashes"], alpha=0.6, zorder=1)
