"""The figure of joint training: how the risk falls, and how near W and v come to their limits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.rates.joint_rate.claims import NEAR, PAPER
from jaxattn.study.claims import total
from jaxattn.study.style import page, palette

_LOOKS = {"plain": (palette.GUIDE, ":"), "normalized": (palette.TEAL, "-"), "falling": (palette.AMBER, "-.")}
_LABELS = {"plain": "plain", "normalized": "normalized", "falling": r"normalized, falling like $k^{-2/3}$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw -log risk by all steps, and 1 - cos of W and v.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.4)
        left, right = figure.subplots(1, 2)
        for run, (colour, dashes) in _LOOKS.items():
            one = summaries[run]
            steps = one["snapshot"].values
            label = f"{_LABELS[run]}: $t^{{{float(one['exponent']):.2f}}}$"
            curve = (one[f"fallen{end}"].values for end in ("", "_10", "_90"))
            page.band(left, steps, *curve, color=colour, linestyle=dashes, label=label)
            for name, mark in (("W", "none"), ("v", ".")):
                look = {"color": colour, "linestyle": dashes, "marker": mark, "label": f"${name}$, {run}"}
                curve = (one[f"off_{name}{end}"].values for end in ("", "_10", "_90"))
                page.band(right, steps, *curve, **look)
        ends = summaries["normalized"]["snapshot"].values[[0, -1]].astype(float)
        bound = 0.5 * np.array(ends) ** PAPER
        left.plot(ends, bound, color="black", linewidth=0.8, label=r"paper's bound, $\propto t^{1/3}$")
        left.set(xscale="log", yscale="log", xlabel="step t", ylabel="-log risk")
        exponent = float(summaries["normalized"]["exponent"])
        found = "faster" if exponent > PAPER else "slower"
        left.set_title(f"(a) normalized steps: -log risk like $t^{{{exponent:.2f}}}$, {found} than the bound")
        left.legend(loc="upper left")
        right.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
        right.set(xscale="log", yscale="log", xlabel="step t", ylabel="1 - cos")
        right.set_title(r"(b) $W$ from $W_{mm}$, $v$ from $\mu$")
        right.legend(loc="lower left")
        page.add_counts(
            figure,
            {"all three runs": xarray.Dataset(attrs=total(summaries))},
            "Medians over seeds; bands from the 10th to the 90th percentile.",
        )
    return figure
