"""The figure of the second paper's lemmas: the printed gradient, the slope of the loss, the slack of the bounds."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.language.lm_lemmas.claims import SAME, SHARP
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# How the basic functions of `measure.BOUNDS` are written.
_NAMES = (r"$\exp(Ax)$", r"$\alpha$", r"$1/\alpha$", "$f$", "$c$", r"$\mathrm{diag}\,f$", r"$f f^\top$")
_PRINTED, _MENDED, _BOUND = palette.WINE, palette.TEAL, palette.GUIDE
_FORMS = (("printed", _PRINTED, "o", "as printed"), ("mended", _MENDED, "s", "$b$ inside $g'$"))
# A bound is loose if it is larger than all that is found by this power of ten.
_LOOSE = 3.0


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the errors of the gradient by label, the slopes by distance, and the shares of the bounds."""
    (summary,) = summaries.values()
    with page.style():
        figure = page.full(3.1)
        gradient, slope, bounds = figure.subplots(1, 3, width_ratios=(1.1, 1, 1.3))
        _gradient(gradient, summary)
        _slope(slope, summary, str(judgements["lm-lemmas:slope"].verdict))
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
    at, labels = np.arange(summary.sizes["label"]), [f"{float(b):g}" for b in summary["label"].values]
    rounding = np.finfo(float).eps / 2
    for name, colour, marker, label in _FORMS:
        # Rounding is drawn where it is largest, so that zeros stay on the axis.
        size = np.maximum(summary[f"{name}_most"].values, rounding)
        axes.plot(at, size, marker, color=colour, markerfacecolor="none", label=label)
    axes.axhline(SAME, color=_BOUND, linestyle=":", linewidth=0.9)
    wrong = [label for label, size in zip(labels, summary["printed_most"].values, strict=True) if size > SAME]
    says = f"wrong for $b$ = {', '.join(wrong)}" if wrong else "right for every label"
    axes.set(
        title=f"(a) gradient as printed:\n{says}",
        xlabel="label $b$",
        ylabel="relative difference\nfrom the gradient",
        yscale="log",
        ylim=(1e-17, 1e7),
        xlim=(-0.5, len(at) - 0.5),
    )
    axes.set_xticks(at, labels)
    axes.legend(loc="upper left")


def _slope(axes: Axes, summary: xarray.Dataset, verdict: str) -> None:
    axes.plot(summary["distance"].values, summary["slope_most"].values, "o-", color=_MENDED, markersize=3)
    axes.axhline(SHARP, color=palette.INK, linestyle="--", linewidth=0.8)
    axes.axhline(1, color=_BOUND, linestyle=":", linewidth=0.9)
    for height, text in ((1, "allowed: 1"), (SHARP, r"sharp: $1 / (6 \sqrt{3})$")):
        axes.annotate(
            text,
            (0.05, height),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=page.SMALLEST,
        )
    axes.set(
        title=f"(b) Lemma 3.12 {verdict}:\nlargest slope {float(summary['slope_most'].max()):.2g}",
        xlabel="$|x - x'|$",
        ylabel="$|g'(x) - g'(x')|\\,/\\,|x - x'|$",
        xscale="log",
        yscale="log",
        ylim=(1e-3, 10),
    )


def _bounds(axes: Axes, summary: xarray.Dataset) -> None:
    rows = np.arange(len(_NAMES))[::-1]
    for radius, marker in zip(summary["radius"].values, ("o", "^"), strict=False):
        shares = summary["share_most"].sel(radius=radius).values
        axes.plot(shares, rows, marker, color=_MENDED, markerfacecolor="none", markersize=4)
        axes.annotate(
            f"$R = {radius:g}$",
            (float(shares[-1]), rows[-1]),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=page.SMALLEST,
        )
    axes.axvline(0, color=_BOUND, linestyle=":", linewidth=0.9)
    largest = summary["share_most"].max("radius").values
    exceeded, loose = (int(hits.sum()) for hits in (largest > 1e-9, largest < -_LOOSE))
    says = f"{exceeded} of {len(_NAMES)} bounds exceeded" if exceeded else f"all {len(_NAMES)} bounds hold"
    beyond = rf"$10^{{{np.floor(-np.max(largest[largest < -_LOOSE])):.0f}}}$" if loose else ""
    slack = f"{loose} loose by {beyond} or more" if loose else "none loose"
    axes.set(
        title=f"(c) {says},\n{slack}",
        xlabel=r"$\log_{10}$ (largest difference / bound)",
        ylim=(-0.6, len(_NAMES) - 0.4),
    )
    axes.set_yticks(rows, _NAMES)
