"""The figure of the second paper's lemmas: the printed gradient, the slope of the loss, the slack of the bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_lemmas.claims import SAME, SHARP
from jaxattn.study.style import page, palette

# How the basic functions of `measure.BOUNDS` are written.
_NAMES = (r"$\exp(Ax)$", r"$\alpha$", r"$1/\alpha$", "$f$", "$c$", r"$\mathrm{diag}\,f$", r"$f f^\top$")
_PRINTED, _MENDED, _BOUND = palette.WINE, palette.TEAL, palette.GUIDE


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the errors of the gradient by label, the slopes by distance, and the shares of the bounds.

    Args:
        summaries: one run, as `claims.summarize` returns it.
    """
    (one,) = summaries.values()
    with page.style():
        figure = page.full(3.4)
        gradient, slope, bounds = figure.subplots(1, 3, width_ratios=(1, 1, 1.3))
        at = np.arange(one.sizes["label"])
        rounding = np.finfo(float).eps / 2
        for name, colour, marker, label in (
            ("printed", _PRINTED, "o", "as printed"),
            ("mended", _MENDED, "s", "$b$ inside $g'$"),
        ):
            # Rounding is drawn where it is largest, so that zeros stay on the axis.
            size = np.maximum(one[f"{name}_most"].values, rounding)
            gradient.plot(at, size, marker, color=colour, markerfacecolor="none", label=label)
        gradient.axhline(SAME, color=_BOUND, linestyle=":", linewidth=0.8)
        gradient.set(
            title="(a) the printed gradient\nis right for labels $\\pm 1$ alone",
            xlabel="label $b$",
            ylabel="largest relative difference\nfrom the gradient",
            yscale="log",
            ylim=(1e-17, 1e6),
            xlim=(-0.5, len(at) - 0.5),
        )
        gradient.set_xticks(at, [f"{float(b):g}" for b in one["label"].values])
        gradient.legend(loc="upper left")

        distance = one["distance"].values
        slope.plot(distance, one["slope_most"].values, "o-", color=_MENDED, markersize=3, label="largest found")
        slope.axhline(SHARP, color="black", linestyle="--", linewidth=0.8, label=r"$1 / (6 \sqrt{3})$, sharp")
        slope.axhline(1, color=_BOUND, linestyle=":", linewidth=0.8, label="Lemma 3.12")
        slope.set(
            title="(b) the slope of the logistic\nfunction: a tenth of the lemma's",
            xlabel="$|x - x'|$",
            ylabel="$|g'(x) - g'(x')|\\,/\\,|x - x'|$",
            xscale="log",
            yscale="log",
            ylim=(1e-3, 10),
        )
        slope.legend(loc="lower left")

        rows = np.arange(len(_NAMES))[::-1]
        for radius, marker in zip(one["radius"].values, ("o", "^"), strict=False):
            shares = one["share_most"].sel(radius=radius).values
            bounds.plot(
                shares, rows, marker, color=_MENDED, markerfacecolor="none", label=f"$R = {radius:g}$", markersize=4
            )
        bounds.axvline(0, color=_BOUND, linestyle=":", linewidth=0.8)
        bounds.set(
            title="(c) the basic bounds are valid,\nmost by tens of decades",
            xlabel=r"$\log_{10}$ of the largest share of the bound",
        )
        bounds.set_yticks(rows, _NAMES)
        bounds.legend(loc="center left")
        page.add_counts(
            figure,
            summaries,
            "Dotted: what the claims allow. Largest of all texts; labels: sequences of one word alone.",
            counted="texts",
        )
    return figure
