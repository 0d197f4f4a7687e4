"""The rank figure: mean ranks as published and of certified solutions, the feasible share, and the tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.svm_rank.claims import PUBLISHED, SETTINGS
from jaxattn.study.style import page, palette

# The larger, the darker, and a marker for each size; the norms differ by their dashes.
_RAMP = palette.ramp(3)
_LOOKS = {
    (5, 5): (_RAMP[0], "o"),
    (10, 5): (_RAMP[1], "s"),
    (15, 5): (_RAMP[2], "^"),
    (5, 10): (_RAMP[1], "D"),
    (5, 15): (_RAMP[2], "v"),
}
_OTHER = (palette.GUIDE, "x")
_RING: dict[str, Any] = {"marker": "o", "markersize": 7, "fillstyle": "none"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the mean ranks over n and over T, in both conventions, and what tells them apart.

    Args:
        summaries: "certified" and each inexact solver's, as `summarize` returns them.
    """
    summary = summaries["certified"]
    inexact = {solver: one for solver, one in summaries.items() if solver != "certified"}
    with page.style():
        figure = page.full(6.6)
        axes = figure.subplots(2, 3)
        for column, (name, other) in enumerate((("n", "T"), ("T", "n"))):
            smallest = int(summary[other].min())
            runs = summary.isel(run=(summary[other] == smallest).values)
            for row, (variable, how) in enumerate(
                (("published", "published count"), ("rank", "certified, feasible only"))
            ):
                panel = axes[row, column]
                _curves(panel, runs, variable, name)
                panel.set_title(f"({'abcdef'[3 * row + column]}) {how}, ${other} = {smallest}$")
                panel.set(xlabel="dimension $d$", ylabel="mean rank")
        _printed(axes[0, 0], inexact)
        _feasible(axes[0, 2], summary)
        _tolerance(axes[1, 2], inexact)
        for column in range(2):
            _same_limits(axes[:, column])
        page.add_counts(
            figure,
            summaries,
            "Means with 95 % intervals. Published count: singular values above an absolute 1e-7, an infeasible problem "
            "counts as rank 1. Certified: above 1e-6 of the largest, of solutions with a certified relative gap of at "
            "most 1e-8; means of fewer than 8 problems are not drawn. (f): the same problems by both solvers.",
            counted="problems",
        )
    return figure


def _curves(axes: Axes, runs: xarray.Dataset, variable: str, name: str) -> None:
    for run in runs["run"].values:
        one = runs.sel(run=run)
        colour, marker = _look(one)
        for norm in ("frobenius", "nuclear"):
            _errors(axes, one.sel(norm=norm), variable, colour, marker, palette.DASHES[norm])
    looks = {int(runs[name].sel(run=run)): _look(runs.sel(run=run)) for run in runs["run"].values}
    for size, (colour, marker) in sorted(looks.items()):
        axes.plot([], [], color=colour, marker=marker, markersize=4, label=f"${name} = {size}$")
    for norm, label in page.NORMS.items():
        axes.plot([], [], color=palette.NOTE, linestyle=palette.DASHES[norm], label=label)
    # Over n the upper left is free; over T, where ranks stay low, the lower right.
    axes.legend(loc="upper left" if name == "n" else "lower right", ncols=1 if name == "n" else 2)


def _look(one: xarray.Dataset) -> tuple[str, str]:
    return _LOOKS.get((int(one["n"]), int(one["T"])), _OTHER)


def _errors(
    axes: Axes, one: xarray.Dataset, variable: str, colour: str, marker: str, dashes: str, label: str | None = None
) -> None:
    mean = one[variable].values
    below, above = mean - one[f"{variable}_low"].values, one[f"{variable}_high"].values - mean
    axes.errorbar(
        one["d"].values,
        mean,
        np.clip([below, above], 0, None),
        color=colour,
        marker=marker,
        markersize=4,
        linestyle=dashes,
        linewidth=1.3,
        elinewidth=0.8,
        label=label,
    )


def _printed(axes: Axes, inexact: Mapping[str, xarray.Dataset]) -> None:
    """Mark the nuclear ranks of the authors' figure, and the same count of an inexact solver's solutions."""
    palette.published(axes, [d for *_, d in SETTINGS], PUBLISHED["nuclear"], "nuclear, 2308.16898")
    for solver, curves in inexact.items():
        for setting in curves["setting"].values:
            one = curves.sel(setting=setting, solver=solver)
            axes.plot(one["d"], one["published"], color=_look(one)[0], zorder=5, **_RING)
        axes.plot([], [], color=palette.NOTE, linestyle="", label=f"nuclear, by {solver}", **_RING)
    axes.legend(loc="upper left")


def _feasible(axes: Axes, summary: xarray.Dataset) -> None:
    for run in summary["run"].values:
        one = summary.sel(run=run)
        colour, marker = _look(one)
        label = f"$n = {int(one['n'])}$, $T = {int(one['T'])}$"
        _errors(axes, one, "feasible", colour, marker, "-", label=label)
    axes.set(title="(c) feasible share", xlabel="dimension $d$", ylabel="share of problems", ylim=(-0.03, 1.05))
    axes.legend(loc="lower right")


def _tolerance(axes: Axes, inexact: Mapping[str, xarray.Dataset]) -> None:
    for solver, curves in inexact.items():
        for setting in curves["setting"].values:
            for which, dashes in (("certified", "-"), (solver, ":")):
                one = curves.sel(setting=setting, solver=which)
                colour, _ = _look(one)
                label = (
                    f"$n = d = {int(one['n'])}$, {which}" if int(one["n"]) == int(one["d"]) else f"{setting}, {which}"
                )
                axes.plot(one["tolerance"], one["rank"], color=colour, linestyle=dashes, label=label)
                axes.fill_between(
                    one["tolerance"], one["rank_low"], one["rank_high"], color=colour, alpha=0.2, linewidth=0
                )
        threshold = float(curves["threshold"].mean())
        axes.axvline(
            threshold, color=palette.GUIDE, linewidth=0.9, linestyle="--", zorder=1, label="the published 1e-7"
        )
    axes.set(
        xscale="log",
        ylim=(0, None),
        xlabel=r"tolerance, relative to $\sigma_1$",
        ylabel="mean nuclear rank",
        title="(f) rank against tolerance, $T = 5$",
    )
    if inexact:
        axes.legend(loc="upper right")


def _same_limits(panels: np.ndarray) -> None:
    highest = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set(ylim=(0, highest), xlim=(0, None))
