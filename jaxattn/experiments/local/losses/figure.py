"""The figure of the losses: 1 - cos of training W with the solutions, under each loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.losses.claims import JOINT, LOSSES, PARALLEL
from jaxattn.study.style import page, palette

_LOOKS = {
    "logistic": (palette.INK, "-"),
    "exponential": (palette.TEAL, "--"),
    "correlation": (palette.WINE, ":"),
    "heavy-tail": (palette.AMBER, "-."),
}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the medians under all losses: from each solution with v fixed, and from the Frobenius one with v trained.

    Args:
        summaries: of `claims.summarize`; without the joint runs the last panel is not drawn.
    """
    joint = [name for name in JOINT if name in summaries]
    with page.style():
        figure = page.full(3.2)
        panels = figure.subplots(1, 3 if joint else 2, sharey=True)
        for axes, norm in zip(panels, ("frobenius", "nuclear"), strict=False):
            _curves(axes, summaries, LOSSES, norm)
        parallel = _shares(summaries, LOSSES)
        panels[0].set_title(f"(a) $v$ fixed, Frobenius SVM:\n{parallel} of the seeds parallel")
        panels[1].set_title("(b) $v$ fixed,\nnuclear SVM")
        panels[0].set_ylabel("direction error, 1 - cos")
        # Its lower half is empty.
        panels[1].legend(loc="lower left")
        if joint:
            _curves(panels[2], summaries, joint, "frobenius")
            panels[2].set_title(f"(c) $v$ trained, Frobenius SVM:\n{_shares(summaries, joint)} parallel")
        page.add_counts(
            figure,
            summaries,
            f"Training W; medians over the seeds, bands from the 10th to the 90th percentile; grey: cos = {PARALLEL}.",
        )
    return figure


def _curves(axes: Axes, summaries: Mapping[str, xarray.Dataset], names: Iterable[str], norm: str) -> None:
    for name in names:
        loss = name.removeprefix("joint ")
        colour, dashes = _LOOKS[loss]
        one = summaries[name].sel(norm=norm)
        curve = (one[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=_label(loss))
    axes.axhline(1 - PARALLEL, color=palette.GUIDE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="step")


def _label(loss: str) -> str:
    written = LOSSES[loss].replace("log", "\\log").replace("exp", "\\exp")
    return f"{loss}, ${written}$"


def _shares(summaries: Mapping[str, xarray.Dataset], names: Iterable[str]) -> str:
    shares = [float(summaries[name]["parallel"]) for name in names]
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"
