"""The figure of joint training: distance from three max-margin problems, over steps and ratio of norms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LOOKS = {
    "unrelaxed": (palette.TEAL, "-", "o"),
    "relaxed": (palette.WINE, "--", "s"),
    "offset": (palette.INK, ":", "^"),
}
_WORDS = {"unrelaxed": "unrelaxed, $\\geq 1$", "relaxed": "relaxed, $\\geq 0$", "offset": "offsets by label margin"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw direction errors of p, (a), and W, (b), along the steps, and of W at the end over the ratio of norms, (c).

    Args:
        summaries: of `claims.summarize`.
    """
    # A few seeds may all have support vectors alone: there is nothing to draw of them.
    runs = [one for one in summaries.values() if one.attrs["mixed"]]
    with page.style():
        figure = page.full(3.1)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, trained, letter in zip(panels, "pW", "ab", strict=False):
            axes.set(xscale="log", yscale="log", xlabel="step")
            for one in runs:
                if (one.attrs["trained"], one.attrs["tau"]) == (trained, 1.0):
                    _along(axes, one)
            axes.set_title(f"({letter}) ${trained}$ and $v$: neither\nproblem, but one between")
        _over_ratio(panels[2], [one for one in runs if one.attrs["trained"] == "W"])
        panels[2].set_title("(c) $W$ at the end: relaxed\nonly if $\\|v\\| \\gg \\|W\\|$")
        panels[0].set_ylabel("direction error, $1 - \\cos$")
        if panels[0].lines:
            panels[0].legend(loc="lower left")
        mixed = ", ".join(f"{one.attrs['mixed']} ({run})" for run, one in summaries.items())
        remark = (
            "Medians, and bands and bars from the 10th to the 90th percentile, over seeds some of whose inputs are no "
            f"support vectors of v: {mixed}."
        )
        page.add_counts(figure, summaries, remark)
    return figure


def _along(axes: Axes, one: xarray.Dataset) -> None:
    for problem, (colour, dashes, _) in _LOOKS.items():
        at = one.sel(problem=problem)
        curve = (at[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=_WORDS[problem])


def _over_ratio(axes: Axes, runs: list[xarray.Dataset]) -> None:
    axes.set(xscale="log", xlabel=r"$\|v\|$ over $\|W\| / \tau$, by the logits' $\tau$")
    if not runs:
        return
    runs = sorted(runs, key=lambda one: one.attrs["tau"])
    tau = np.array([one.attrs["tau"] for one in runs])
    for problem, (colour, dashes, marker) in _LOOKS.items():
        ends = [[float(one.sel(problem=problem)[f"off_{q}"][-1]) for one in runs] for q in (10, 50, 90)]
        low, middle, high = np.array(ends)
        look = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 4, "capsize": 2}
        axes.errorbar(tau, middle, [middle - low, high - middle], **look)
