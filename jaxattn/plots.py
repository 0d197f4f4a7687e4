"""Plots of your own runs: trajectories in the plane, and means over seeds with confidence intervals.

Needs Matplotlib. No window is opened: each function returns a figure, or draws into the axes you pass.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn import attention, tokens
from jaxattn.bias.verdict import CLOSE
from jaxattn.descent import Run
from jaxattn.problem import Problem, check_one
from jaxattn.statistics import bootstrap
from jaxattn.study.style import page, palette
from jaxattn.study.style.plane import plane
from jaxattn.svm import Solution, Status

__all__ = ["alignment", "bands", "plane", "trajectory"]


def trajectory(run: Run, problem: Problem, solution: Solution | None = None) -> Figure:
    """Plot the paths of `W(k) z_i` in the plane over the snapshots of one run, and the rays of an SVM solution.

    Source: 2308.16898, figure 1.

    Args:
        run: a run of `descent.train` with snapshots, on a problem with d = 2.
        problem: the problem it was trained on.
        solution: the max-margin solution for the same selected tokens. Default: no rays.

    Raises:
        ValueError: not one problem of d = 2; a run without snapshots, or with snapshots that are not finite; a solution
            without a direction, as an infeasible problem has.

    Example:
        >>> run = descent.train(jnp.zeros((2, 2)), planar, steps=50, snapshots=range(1, 51))
        >>> solution = svm.solve(svm.token_constraints(planar, tokens.selected(run.weights, planar)))
        >>> figure = plots.trajectory(run, planar, solution)
    """
    check_one(problem)
    if problem.d != 2:
        raise ValueError(f"problem: expected d = 2, which can be drawn, found d = {problem.d}")
    W = np.asarray(attention.matrix(run.snapshots))
    if len(W) == 0:
        raise ValueError("run: expected snapshots, found none; train with snapshots=range(1, steps + 1)")
    if not np.isfinite(W).all():
        raise ValueError("run: expected finite snapshots, found NaN or infinity among them")
    if solution is not None and not np.any(solution.W):
        raise ValueError(
            f"solution: expected W with a direction, found W = 0 of status {Status(int(solution.status)).name}"
        )
    paths = np.einsum("kde,ne->nkd", W, np.asarray(problem.Z))
    rays = None if solution is None else np.asarray(problem.Z) @ np.asarray(solution.W).T
    with page.style():
        figure = page.column(3.3)
        axes = figure.subplots()
        plane(axes, np.asarray(problem.X), np.asarray(tokens.selected(run.weights, problem)), paths, rays)
        axes.legend(loc="best")
    return figure


def alignment(ranking: Any) -> Figure:
    """Plot the mean margin ratio of each norm against the step, with its 95 % interval.

    Args:
        ranking: a `bias.Ranking`, as `bias.rank` returns it.

    Example:
        >>> figure = plots.alignment(ranking)
    """
    with page.style():
        figure = page.full(3.0)
        axes = figure.subplots()
        axes.axhspan(CLOSE, 1.0, color="#eeeeee", linewidth=0)
        axes.axhline(1.0, color=palette.GUIDE, linewidth=0.8)
        ratio = ranking.ratio
        # The legend has the same order as the curves at their right end.
        for k in np.argsort(-ratio.mean[:, -1]):
            norm = ranking.norms[k]
            colour = palette.COLOURS.get(norm, palette.OTHERS[k % len(palette.OTHERS)])
            look = {"color": colour, "linestyle": palette.STYLES[k % len(palette.STYLES)], "label": norm}
            page.band(axes, ranking.steps, ratio.mean[k], ratio.low[k], ratio.high[k], **look)
        verdict = ranking.verdict
        finding = f"obeys {verdict}" if verdict.decided else str(verdict)
        axes.set_xscale("log")
        if ranking.steps[0] == 0:
            # A logarithmic axis has no place for the start.
            axes.set_xscale("symlog", linthresh=ranking.steps[1] if len(ranking.steps) > 1 else 1)
        axes.set(xlabel="step", ylabel="margin ratio", title=textwrap.fill(finding, 50))
        # Label the first and last snapshot only: the labels between them would overlap.
        axes.set_xticks(ranking.steps[[0, -1]], [f"{step:,}" for step in ranking.steps[[0, -1]]])
        axes.set_xticks([], minor=True)
        figure.legend(loc="outside right upper")
        kept, attempted = ranking.counts["kept"], ranking.counts["attempted"]
        note = f"{kept} of {attempted} seeds"
        page.note(figure, f"mean and 95 % interval of {note}" if kept > 1 else f"{note}, without an interval")
    return figure


def bands(
    axes: Axes,
    x: Any,
    values: Float[np.ndarray, "seeds points"],
    key: PRNGKeyArray,
    color: str = palette.TEAL,
    **look: Any,
) -> None:
    """Plot the mean over seeds as a curve and its 95 % bootstrap interval as a band.

    Args:
        axes: the axes to draw into.
        x: the x coordinates of the points, (points,).
        values: one curve per seed, (seeds, points).
        key: the random key of the bootstrap.
        color: the colour of curve and band.
        look: further options of `Axes.plot` for the curve: label, linestyle.

    Raises:
        ValueError: values of another shape, no seeds, or a value that is not finite.

    Example:
        >>> axes = Figure().subplots()
        >>> plots.bands(axes, np.arange(3), np.random.default_rng(0).normal(size=(20, 3)), key, label="1 - cos")
    """
    if np.ndim(values) != 2:
        raise ValueError(f"values: expected one curve a seed, (seeds, points), found shape {np.shape(values)}")
    estimate = bootstrap(np.asarray(values), key)
    page.band(axes, x, estimate.mean, estimate.low, estimate.high, color=color, **look)
