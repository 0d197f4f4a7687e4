"""The feasibility figure: share of problems whose random tokens can be selected, against d."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

# One for each number of inputs, in increasing order, so that they are told apart in grey too.
_MARKERS = "os^Dv"


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw one panel a number of tokens T, one curve a number of inputs n, with 95 % intervals.

    Above each curve's panel a bar shows the dimensions in which the theorem promises a share of 1.

    Args:
        summaries: "random tokens", as `summarize` returns it.
    """
    summary = summaries["random tokens"]
    sizes = np.unique(summary["T"].values)
    numbers = np.unique(summary["n"].values)
    looks = dict(zip(numbers, zip(palette.ramp(len(numbers)), cycle(_MARKERS), strict=False), strict=False))
    with page.style():
        figure = page.full(3.2)
        panels = np.atleast_1d(figure.subplots(1, len(sizes), sharey=True))
        for axes, T in zip(panels, sizes, strict=True):
            runs = summary.isel(run=(summary["T"] == T).values)
            _panel(axes, runs, looks)
            axes.set(xlabel="dimension $d$", title=f"({'abcdefgh'[list(sizes).index(T)]}) $T = {T}$: {_found(runs)}")
        panels[0].set_ylabel("share of feasible problems")
        panels[-1].legend(loc="lower right", title="inputs")
        counts = {name: int(summary.attrs[name]) for name in ("attempted", "kept", "infeasible", "unsolved")}
        page.note(
            figure,
            f"{counts['attempted']:,} problems, {int(summary['seeds'].min())} a point: {counts['kept']:,} with a "
            f"certified solution, {counts['infeasible']:,} certified infeasible, {counts['unsolved']:,} unsolved, that "
            "count as not feasible. 95 % intervals. Bars above 1: $d \\geq \\max(T - 1, n)$, where the theorem "
            "promises a share of 1.",
        )
    return figure


def _found(runs: xarray.Dataset) -> str:
    """Say from which dimension all problems of a panel are feasible, and from which the theorem promises it."""
    always, promised = float(runs["always"].max(skipna=False)), int(runs["enough"].max())
    if np.isnan(always):
        return f"not all feasible, promised from $d = {promised}$"
    return f"all feasible from $d = {always:.0f}$, promised from {promised}"


def _panel(axes: Axes, runs: xarray.Dataset, looks: Mapping[int, tuple[str, str]]) -> None:
    last = float(runs["d"].max())
    for k, run in enumerate(runs["run"].values):
        one = runs.sel(run=run)
        colour, marker = looks[int(one["n"])]
        mean, d = one["feasible"].values, one["d"].values
        errors = np.clip([mean - one["feasible_low"].values, one["feasible_high"].values - mean], 0, None)
        axes.errorbar(
            d, mean, errors, color=colour, marker=marker, markersize=4, elinewidth=0.8, label=f"$n = {int(one['n'])}$"
        )
        if one["enough"] <= last:
            height = 1.07 + 0.05 * k
            axes.plot([float(one["enough"]), last + 0.4], [height, height], color=colour, linewidth=3)
            axes.plot(float(one["enough"]), height, color=colour, marker=marker, markersize=5)
    axes.set(ylim=(-0.03, 1.1 + 0.05 * runs.sizes["run"]), xlim=(float(runs["d"].min()) - 0.4, last + 0.4))
    axes.set_yticks(np.linspace(0, 1, 6))
