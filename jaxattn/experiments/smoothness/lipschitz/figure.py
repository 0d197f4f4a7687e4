"""The figure of the Lipschitz constant of the gradient: what is found, what is proved, and how far off M is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.smoothness.lipschitz.claims import ASKED
from jaxattn.study.style import page, palette

_LOOKS = {
    "bound": {"color": palette.INK, "linestyle": "-", "label": "derived bound"},
    "bend": {"color": palette.TEAL, "linestyle": "-", "marker": "o", "markersize": 3, "label": "largest found"},
    "ratio": {"color": palette.WINE, "linestyle": ":", "label": "largest ratio of gradient differences"},
}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a panel a risk: the second derivatives found, the derived bound, and arrows towards the paper's constant.

    Args:
        summaries: of `claims.summarize`.
    """
    (one,) = summaries.values()
    radius = one["radius"].values
    with page.style():
        figure = page.full(3.4)
        panels = figure.subplots(1, one.sizes["risk"], sharey=True)
        for axes, letter, risk in zip(panels, "abc", one["risk"].values, strict=True):
            of_risk = one.sel(risk=risk)
            for name, look in _LOOKS.items():
                parts = (10 ** np.asarray(of_risk[part]) for part in (name, f"{name}_low", f"{name}_high"))
                page.band(axes, radius, *parts, **look)
            finding = f"like $R^{{{float(of_risk['power']):.1f}}}$, {_apart(of_risk):.0f} decades below $M$"
            axes.set(
                title=f"({letter}) {risk}: found grows\n{finding}",
                xlabel="bound $R$ of all norms",
                yscale="log",
            )
            axes.set_xscale("log", base=2)
            axes.set_xticks(radius, [f"{R:g}" for R in radius])
            axes.minorticks_off()
        panels[0].set_ylabel("largest second derivative")
        # Room for the arrows; the panels share their limits.
        low, high = panels[0].get_ylim()
        panels[0].set_ylim(low, 1000 * high)
        for axes in panels:
            _arrows(axes, one)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        page.add_counts(
            figure,
            summaries,
            f"Geometric means over texts with 95 % bootstrap intervals; found at {one.attrs['draws']} drawn $W$, "
            "$\\|W\\|_F \\leq R$, and at 0. Arrows: the paper's $M = 3 n^3 R^7 e^{13 R^2}$, far above the panels; it "
            f"is stated for $R \\geq {ASKED:g}$. Titles: fitted powers, and the distance to $M$ at $R = {ASKED:g}$.",
            counted="texts",
        )
    return figure


def _apart(of_risk: xarray.Dataset) -> float:
    """Return the decades from the largest second derivative found in any text to M, at the first R that M is for."""
    return float((of_risk["paper"] - of_risk["steepest"]).sel(radius=ASKED))


def _arrows(axes: Axes, one: xarray.Dataset) -> None:
    """Draw an arrow with its power of ten at each radius where M is stated, and lies above the panel."""
    top = np.log10(axes.get_ylim()[1])
    for R in one["radius"].values[one["radius"].values >= ASKED]:
        decades = float(one["paper"].sel(radius=R))
        if decades > top:
            arrow = {"arrowstyle": "->", "color": palette.INK, "linewidth": 0.9}
            axes.annotate("", (R, 10**top), (R, 10 ** (top - 1.3)), arrowprops=arrow)
            label = f"$M = 10^{{{decades:.0f}}}$" if R == ASKED else f"$10^{{{decades:.0f}}}$"
            axes.annotate(label, (R, 10 ** (top - 1.4)), ha="right" if R == ASKED else "center", va="top", fontsize=7.5)
