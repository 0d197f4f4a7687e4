"""The multi-token figure over lambda: how many tokens are selected, and 1 - correlation with each description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.several_tokens.evidence import RANKED
from jaxattn.experiments.several_tokens.looks import FITTED, LOOKS
from jaxattn.study.style import page, palette


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw both panels against lambda, means with 95 % intervals.

    Args:
        summaries: of `claims.summarize`, lambda increasing.
    """
    runs = list(summaries.values())
    with page.style():
        figure = page.full(3.4)
        left, right = figure.subplots(1, 2)
        _bars(left, runs, "tokens", "selected by descent", color=palette.TEAL, marker="o")
        penalties = [one.attrs["penalty"] for one in runs if "best" in one]
        best = [float(one["best"]) for one in runs if "best" in one]
        left.plot(
            penalties,
            best,
            color=palette.WINE,
            linestyle="--",
            marker="s",
            markersize=4,
            label="mixed by the best attention",
        )
        for solution in RANKED:
            label, colour, dashes, marker = LOOKS[solution]
            own = [one.sel(solution=solution) for one in runs]
            _bars(right, own, "off", label, color=colour, linestyle=dashes, marker=marker)
        left.set(title="(a) tokens of an input", ylabel="mean number", ylim=(0, None))
        right.set(title="(b) direction at the end", ylabel="1 - correlation", yscale="log", ylim=(1e-6, 1.5))
        # Lambda doubles from point to point, and begins at 0.
        linear = min((penalty for penalty in penalties if penalty > 0), default=1.0)
        for axes in (left, right):
            axes.set_xscale("symlog", linthresh=linear, linscale=0.5)
            axes.set_xlim(left=-0.2 * linear)
            axes.set(xlabel=r"$\lambda$", xticks=penalties, xticklabels=[f"{penalty:g}" for penalty in penalties])
            axes.minorticks_off()
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="lower right")
        page.add_counts(
            figure,
            summaries,
            f"Means over runs with 95 % bootstrap intervals, (a) of all that did not diverge. {FITTED}",
            "runs",
        )
    return figure


def _bars(axes: Axes, runs: list[xarray.Dataset], name: str, label: str, **look: Any) -> None:
    """Draw the means of the runs that have one, with their intervals."""
    there = [one for one in runs if name in one]
    mean, low, high = (np.array([float(one[name + part]) for one in there]) for part in ("", "_low", "_high"))
    errors = np.clip([mean - low, high - mean], 0, None)
    axes.errorbar(
        [one.attrs["penalty"] for one in there], mean, errors, label=label, markersize=4, elinewidth=0.8, **look
    )
