"""The rate figure: 1 - correlation against the number of steps, of W and of (K, Q), on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.local.distance import FROM
from jaxattn.experiments.local.rate.claims import GOES_ON, form
from jaxattn.study.style import page, palette

_TITLES = {"W": "(a) training $W$, from $W_F$:\n", "KQ": "(b) training $(K, Q)$, from $W_*$:\n"}
_FORMS = {
    "as published": ("as published", palette.GUIDE, "--"),
    "exact direction": ("exact direction, no penalty", palette.TEAL, "-"),
    "step k^-1/2": ("the same, step like $k^{-1/2}$", palette.WINE, "-."),
}


_REMARK = (
    f"Geometric means over kept seeds. Exponents: fitted from step {FROM:,} on; level: between {GOES_ON:g} and "
    f"{-GOES_ON:g}. $W_F$, $W_*$: the Frobenius and the nuclear SVM solution."
)


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
            axes.set(title=f"{_TITLES[weights]}{_nearest(own)}", xlabel="step", xscale="log", yscale="log")
            spread = Patch(facecolor=palette.GUIDE, alpha=0.2, label="10 % to 90 % of the seeds")
            axes.legend(handles=[*axes.get_legend_handles_labels()[0], spread], loc="lower left")
        panels["W"].set_ylabel("direction error, 1 - cos")
        named = {f"{page.RUNS[one.attrs['weights']]} {_form(one)[0]}": one for one in summaries.values()}
        page.add_counts(figure, named, _REMARK)
    return figure


def _form(one: xarray.Dataset) -> tuple[str, str, str]:
    return _FORMS[form(one)]


def _curve(axes: Axes, one: xarray.Dataset) -> None:
    label, colour, dashes = _form(one)
    if "exponent_mean" in one:
        label += f": {_trend(float(one['exponent_mean']))}"
    curve = (one[name].values for name in ("snapshot", "off", "off_10", "off_90"))
    page.band(axes, *curve, color=colour, linestyle=dashes, label=label)


def _nearest(own: Sequence[xarray.Dataset]) -> str:
    """Say how far the nearest run of these weights comes."""
    ends = {_form(one)[0]: float(one["off"][-1]) for one in own}
    label = min(ends, key=ends.__getitem__)
    return f"nearest at the end: {label}, {page.power(ends[label])}"


def _trend(exponent: float) -> str:
    """Say whether a distance falls or rises like a power of the number of steps."""
    if abs(exponent) <= -GOES_ON:
        return "level"
    return f"{'falls' if exponent < 0 else 'rises'} like $k^{{{exponent:.2f}}}$"


def _slope(axes: Axes, one: xarray.Dataset) -> None:
    """Draw a line that falls like k^-2, beside the curves."""
    steps = one["snapshot"].values[[0, -1]].astype(float)
    if one.attrs["weights"] == "W":
        start = 30 * float(one["off"][-1]) * steps[-1] ** 2
        near = np.array([max(steps[0], (start / 0.3) ** 0.5), steps[-1]])
        axes.plot(near, start * near**-2.0, color="black", linewidth=0.7, linestyle=":", label="$k^{-2}$")
