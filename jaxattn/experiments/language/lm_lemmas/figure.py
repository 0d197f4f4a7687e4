"""The figure of the second paper's lemmas: the printed gradient, the slope of the loss, the slack of the bounds."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_lemmas.claims import SAME, SHARP
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

# How the basic functions of `measure.BOUNDS` are written.
_NAMES = (r"$\exp(Ax)$", r"$\alpha$", r"$1/\alpha$", "$f$", "$c$", r"$\mathrm{diag}\,f$", r"$f f^\top$")
_FORMS = (("printed", palette.WINE, "o", "as printed"), ("mended", palette.TEAL, "s", "$b$ inside $g'$"))
_ALLOWED = {"color": palette.GUIDE, "linestyle": ":", "linewidth": 0.9}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the errors of the gradient by label, the slopes by distance, and the shares of the bounds."""
    (summary,) = summaries.values()
    with page.style():
        figure = page.full(3.1)
        gradient, slope, bounds = figure.subplots(1, 3, width_ratios=(1.1, 1, 1.3))
        _gradient(gradient, summary)
        _slope(slope, summary)
        _bounds(bounds, summary)
        page.add_counts(
            figure,
            summaries,
            "Every mark is the largest of all texts. Excluded: sequences of one word alone, whose gradient is zero. "
            "Dotted: what the claims allow.",
            counted="texts",
        )
    return figure


def _gradient(axes: Axes, summary: xarray.Dataset) -> None:
    at, rounding = np.arange(summary.sizes["label"]), np.finfo(float).eps / 2
    for name, colour, marker, label in _FORMS:
        # Rounding is drawn where it is largest, so that zeros stay on the axis.
        size = np.maximum(summary[f"{name}_most"].values, rounding)
        axes.plot(at, size, marker, color=colour, markerfacecolor="none", label=label)
    axes.axhline(SAME, **_ALLOWED)
    largest = page.at_most(float(summary["printed_most"].max()))
    axes.set(
        title=f"(a) gradient as printed:\noff by up to {largest} times its norm",
        xlabel="label $b$",
        ylabel="relative difference\nfrom the gradient",
        yscale="log",
        ylim=(1e-17, 1e7),
        xlim=(-0.5, len(at) - 0.5),
    )
    axes.set_xticks(at, [f"{float(b):g}" for b in summary["label"].values])
    axes.legend(loc="upper left")


def _slope(axes: Axes, summary: xarray.Dataset) -> None:
    axes.plot(summary["distance"].values, summary["slope_most"].values, "o-", color=palette.TEAL, markersize=3)
    axes.axhline(SHARP, color=palette.INK, linestyle="--", linewidth=0.8)
    axes.axhline(1, **_ALLOWED)
    for height, text in ((1, "allowed: 1"), (SHARP, r"sharp: $1 / (6 \sqrt{3})$")):
        beside(axes, text, (0.05, height), (0, 3), xycoords=axes.get_yaxis_transform())
    axes.set(
        title=f"(b) largest slope {float(summary['slope_most'].max()):.2g},\nLemma 3.12 allows 1",
        xlabel="$|x - x'|$",
        ylabel="$|g'(x) - g'(x')|\\,/\\,|x - x'|$",
        xscale="log",
        yscale="log",
        ylim=(1e-3, 10),
    )


def _bounds(axes: Axes, summary: xarray.Dataset) -> None:
    rows = np.arange(len(_NAMES))[::-1]
    for radius, marker in zip(summary["radius"].values, ("o", "^"), strict=True):
        shares = summary["share_most"].sel(radius=radius).values
        axes.plot(shares, rows, marker, color=palette.TEAL, markerfacecolor="none", markersize=4)
        beside(axes, f"$R = {radius:g}$", (float(shares[-1]), rows[-1]), (5, 0), va="center")
    axes.axvline(0, **_ALLOWED)
    largest = page.power(10 ** float(summary["share_most"].max()))
    axes.set(
        title=f"(c) largest difference:\n{largest} times its bound",
        xlabel=r"$\log_{10}$ (largest difference / bound)",
        ylim=(-0.6, len(_NAMES) - 0.4),
    )
    axes.set_yticks(rows, _NAMES)
