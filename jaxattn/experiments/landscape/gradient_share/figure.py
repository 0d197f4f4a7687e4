"""The gradient-share figure: what is left to non-support tokens, over the steps and against their slack."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.landscape.gradient_share.claims import LEAST
from jaxattn.study.style import page, palette

# Between the ticks of (a).
_DECADES = 20


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the share of all non-support tokens, each one's against its slack, and the slope of the latter.

    Args:
        summaries: of `claims.summarize`.
    """
    (summary,) = summaries.values()
    with page.style():
        figure = page.full(3.3)
        left, middle, right = figure.subplots(1, 3)
        steps = summary["snapshot"].values
        together = (10 ** summary[name].values for name in ("log_together", "log_together_low", "log_together_high"))
        page.band(left, steps, *together, color=palette.COLOURS["W"])
        ends = [10 ** float(summary["log_together"][k]) for k in (0, -1)]
        left.set(title="(a) all non-support tokens:\n" + " to ".join(map(page.power, ends)))
        left.set(ylabel="share of the gradient", yscale="log")
        # A share is at most 1.
        low = _DECADES * np.floor(float(summary["log_together_low"].min()) / _DECADES)
        left.set(ylim=(10**low, 1), yticks=10 ** np.arange(low, 1, _DECADES))
        _tokens(middle, summary)
        slope = (summary[name].values for name in ("slope", "slope_low", "slope_high"))
        page.band(right, steps, *slope, color=palette.COLOURS["W"], label="mean over seeds")
        right.axhline(-1, color="black", linewidth=0.7, linestyle=":", label="$-1$")
        right.set(title=f"(c) slope of (b):\nends at {float(summary['slope'][-1]):.2f}")
        right.set_ylabel("slope of the natural logarithm")
        for axes in (left, right):
            axes.set(xlabel="step", xscale="log")
        right.legend(loc="upper right")
        support = f"{float(summary['support']):.0%} of the tokens that are not selected are support vectors."
        page.add_counts(
            figure,
            {"W": summary},
            f"(a), (c): means over kept seeds ((a) geometric) with 95 % intervals; (b): medians and quantiles "
            f"over tokens. {support}",
        )
    return figure


def _tokens(axes: Axes, summary: xarray.Dataset) -> None:
    for step, colour in zip(summary["drawn"].values, palette.ramp(summary.sizes["drawn"]), strict=True):
        one = summary.sel(drawn=step)
        one = one.isel(bin=(one["tokens"] >= LEAST).values)
        curve = (np.exp(one[name].values) for name in ("share_50", "share_10", "share_90"))
        page.band(axes, one["bin"].values, *curve, color=colour, label=f"step {int(step)}")
    ends = np.array([0, float(summary["bin"][-1])])
    axes.plot(
        ends,
        np.exp(-2.5 - ends),
        color="black",
        linewidth=0.7,
        linestyle=":",
        label=r"$\propto e^{-\mathrm{slack}\,\|W\|/\|W_{mm}\|}$",
    )
    axes.set(title="(b) each of them,\nagainst its slack", xlabel=r"slack $\times\ \|W\|_F\,/\,\|W_{mm}\|_F$")
    axes.set(ylabel="share of the gradient", yscale="log")
    spread = Patch(facecolor=palette.GUIDE, alpha=0.2, label="10 % to 90 %")
    axes.legend(handles=[*axes.get_legend_handles_labels()[0], spread], loc="lower left", handlelength=1.2)
