"""The rate figure: 1 - correlation against the number of steps, of W and of (K, Q), on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.rate.claims import form
from jaxattn.study.style import page, palette

_TITLES = {"W": "(a) $W$, from the Frobenius solution", "KQ": "(b) $(K, Q)$, from the nuclear solution"}
_FORMS = {
    "as published": ("as published", palette.GUIDE, "--"),
    "exact direction": ("exact direction, no penalty", palette.TEAL, "-"),
    "step k^-1/2": ("the same, step like $k^{-1/2}$", palette.WINE, "-."),
}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the two panels: geometric means over seeds, and between which the middle 80 % of the seeds are.

    Args:
        summaries: of `summarize` in this folder.
    """
    with page.style():
        figure = page.full(3.7)
        panels = dict(zip(_TITLES, figure.subplots(1, 2, sharey=True), strict=True))
        for weights, axes in panels.items():
            own = [one for one in summaries.values() if one.attrs["weights"] == weights]
            for one in own:
                _curve(axes, one)
            _slope(axes, own[-1])
            axes.set(title=_TITLES[weights], xlabel="step", xscale="log", yscale="log")
            axes.legend(loc="lower left")
        panels["W"].set_ylabel("1 - correlation with SVM solution")
        named = {f"{page.RUNS[one.attrs['weights']]} {_form(one)[0]}": one for one in summaries.values()}
        page.add_counts(figure, named, "Geometric means over kept seeds; bands: from the 10 % to the 90 % quantile.")
    return figure


def _form(one: xarray.Dataset) -> tuple[str, str, str]:
    return _FORMS[form(one)]


def _curve(axes: Axes, one: xarray.Dataset) -> None:
    label, colour, dashes = _form(one)
    if "exponent_mean" in one:
        label += f": $k^{{{float(one['exponent_mean']):.2f}}}$"
    curve = (one[name].values for name in ("snapshot", "off", "off_10", "off_90"))
    page.band(axes, *curve, color=colour, linestyle=dashes, label=label)


def _slope(axes: Axes, one: xarray.Dataset) -> None:
    """Draw a line that falls like k^-2, beside the curves."""
    steps = one["snapshot"].values[[0, -1]].astype(float)
    if one.attrs["weights"] == "W":
        start = 30 * float(one["off"][-1]) * steps[-1] ** 2
        near = np.array([max(steps[0], (start / 0.3) ** 0.5), steps[-1]])
        axes.plot(near, start * near**-2.0, color="black", linewidth=0.7, linestyle=":", label="$k^{-2}$")
