"""The figure of the Lipschitz constant of the gradient, against the norm that bounds all others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.smoothness.lipschitz.claims import ASKED
from jaxattn.study.style import page, palette

_LOOKS = {"cross entropy": (palette.TEAL, "-"), "logistic": (palette.WINE, "--"), "squared": (palette.AMBER, "-.")}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the paper's constant over all that was found, and each risk by itself with its derived bound.

    Args:
        summaries: of `claims.summarize`.
    """
    (one,) = summaries.values()
    radius = one["radius"].values
    with page.style():
        figure = page.full(6.2)
        panels = figure.subplots(2, 2).ravel()
        panels[0].plot(radius, one["paper"], color="black", marker="o", markersize=3, label="$M$ of the paper")
        for risk, (colour, dashes) in _LOOKS.items():
            panels[0].plot(radius, one["bend"].sel(risk=risk), color=colour, linestyle=dashes, label=f"found, {risk}")
        panels[0].set(title="(a) the paper's constant", ylabel="decimal logarithm of the constant")
        panels[0].legend(loc="upper left")
        for axes, letter, (risk, (colour, _)) in zip(panels[1:], "bcd", _LOOKS.items(), strict=True):
            _panel(axes, one.sel(risk=risk), colour)
            axes.set(title=f"({letter}) {risk}", ylabel="Lipschitz constant of the gradient")
        panels[1].legend(loc="upper left")
        for axes in panels:
            axes.set_xscale("log", base=2)
            axes.set(xlabel="bound $R$ of all norms", xticks=radius, xticklabels=[f"{R:g}" for R in radius])
            axes.minorticks_off()
        page.add_counts(
            figure,
            summaries,
            f"Geometric means over texts with 95 % bootstrap intervals; found at {one.attrs['draws']} drawn $W$, "
            "$\\|W\\|_F \\leq R$, and at 0. $M = 3 n^3 R^7 e^{13 R^2}$ is asked for at $R \\geq 4$; it lies "
            f"{float((one['paper'] - one['steepest']).sel(radius=ASKED).min()):.0f} decades above all that is found at "
            "$R = 4$, outside of (b) to (d).",
            counted="texts",
        )
    return figure


def _panel(axes: Axes, one: xarray.Dataset, colour: str) -> None:
    radius = one["radius"].values
    curves = {
        "bound": {"color": "black", "linestyle": "-", "label": "derived bound"},
        "bend": {
            "color": colour,
            "linestyle": "-",
            "marker": "o",
            "markersize": 3,
            "label": "largest second derivative",
        },
        "ratio": {"color": colour, "linestyle": ":", "label": "largest ratio of differences"},
    }
    for name, look in curves.items():
        page.band(
            axes, radius, *(10 ** np.asarray(one[part]) for part in (name, f"{name}_low", f"{name}_high")), **look
        )
    axes.set_yscale("log")
    power, low, high = (float(one[part]) for part in ("power", "power_low", "power_high"))
    axes.text(0.97, 0.06, f"$R^{{{power:.2f}}}$ ({low:.2f} to {high:.2f})", transform=axes.transAxes, ha="right")
