"""The figure of the two regular languages."""

from __future__ import annotations

from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.tasks.regular_languages.claims import EQUAL, FAR, FAST, NEAR, RUNS
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_LOOKS = {
    FAST[0]: (palette.TEAL, "-"),
    FAST[1]: (palette.WINE, "--"),
    FAST[2]: (palette.AMBER, "-."),
    EQUAL: (palette.INK, ":"),
}
# The runs whose norms are drawn.
_GROWING = (FAST[1], EQUAL)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw both norms (a), the loss (b), and v's distance from two hyperplanes (c), (d) along the steps."""
    said = {name.partition(":")[2]: judgement.verdict for name, judgement in judgements.items()}
    with page.style():
        figure = page.full(4.6)
        figure.suptitle(
            f"After a rapid first phase ({said['phases']}) the linear layer turns to the max-margin hyperplane "
            f"({said['hyperplane']})"
        )
        norms, loss, now, first = figure.subplots(2, 2).ravel()
        for run in filter(summaries.__contains__, RUNS):
            summary, (colour, dash) = summaries[run], _LOOKS[run]
            if run in _GROWING:
                _curve(norms, summary, "size_v", color=colour, linestyle=dash, linewidth=0.8)
                _curve(norms, summary, "size_W", color=colour, linestyle=dash, linewidth=1.6)
                norms.axvline(float(summary["phase"]), color=colour, linestyle=dash, linewidth=0.6)
            _curve(loss, summary, "loss", color=colour, linestyle=dash, label=run)
            _curve(now, summary, "off", "later", color=colour, linestyle=dash)
            _curve(first, summary, "off_first", color=colour, linestyle=dash)
            first.axvline(float(summary["phase"]), color=colour, linestyle=dash, linewidth=0.6)
        norms.set(ylabel="norm")
        norms.set_title(f"(a) attention (thick) becomes stable,\nlinear layer (thin) logarithmic: {said['stable']}")
        loss.set(ylabel="loss", yscale="log", ylim=(1e-9, 2), title=f"(b) loss of O(1/t): {said['loss']}")
        loss.legend(loc="lower left", title="mean over seeds, 95 % interval")
        now.set_title(f"(c) from the hyperplane of the present outputs: {said['hyperplane']}")
        first.set_title(f"(d) from that of the outputs ending phase 1: {said['final-outputs']}")
        for axes, asked, words, side in ((now, NEAR, "below", "left"), (first, FAR, "above", "right")):
            axes.axhline(asked, color=palette.GUIDE, linewidth=0.7)
            place = {"xycoords": axes.get_yaxis_transform(), "ha": side, "va": "top"}
            at = (0.01 if side == "left" else 0.99, asked)
            axes.annotate(f"asked for: {words}", at, fontsize=page.SMALLEST, color=palette.GUIDE, **place)
            axes.set(yscale="log", ylabel="direction error, 1 - cos", ylim=(1e-3, 1))
        for axes in figure.axes:
            axes.set(xscale="log", xlabel="step", xlim=(1, None))
        page.add_counts(figure, summaries, "Vertical lines: the end of the first phase.")
    return figure


def _curve(axes: Axes, summary: xarray.Dataset, name: str, along: str = "snapshot", **look: Any) -> None:
    page.band(axes, *(summary[part].values for part in (along, name, f"{name}_low", f"{name}_high")), **look)
