"""The figure of two layers: margin ratios of each along the steps, and the first layer's against unread positions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.depth.claims import GONE, LAYERS
from jaxattn.study.style import page, palette

_TITLES = {"second": "(a) second layer", "first": "(b) first layer"}
_EVERY = palette.GUIDE
# Where shares too small to be told apart are drawn, as decimal logarithms.
_FLOOR = -30.0


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the ratios of both layers, and of every seed what lacks of the first one's against the unread share.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.2)
        left, middle, right = figure.subplots(1, 3)
        for axes, name in ((left, "second"), (middle, "first")):
            for norm in page.NORMS:
                _along(
                    axes, summaries[name].sel(norm=norm), palette.COLOURS[norm], palette.DASHES[norm], page.NORMS[norm]
                )
            axes.set(title=_TITLES[name])
        every = summaries["every"].sel(norm="frobenius")
        _along(middle, every, _EVERY, ":")
        for axes in (left, middle):
            axes.axhline(CLOSE, color="black", linewidth=0.6)
            axes.set(xlabel="step", xscale="log", ylim=(-0.55, 1.03))
        left.set_ylabel("margin ratio")
        left.legend(loc="lower right", handlelength=1.2)
        last = int(every["snapshot"][-1])
        middle.text(last, -0.1, "every\nposition", color=_EVERY, fontsize=7, ha="right", va="top")
        _lacks(right, summaries["first"])
        figure.suptitle(_finding(summaries))
        one = summaries["first"]
        page.add_counts(
            figure,
            {"two layers": one},
            f"(a), (b): means over seeds with 95 % intervals; line: {CLOSE}, above which a norm can be named. "
            "(b), colours: the Att-SVM over the positions that the second layer reads; grey: over every position, "
            f"Frobenius. (c): a dot a seed at step {int(one['snapshot'][-1]):,}; shares below 1e{_FLOOR:.0f} are "
            f"drawn there; line: a share of .01, below which it ends in {float(one['gone']):.0%} of the seeds.",
        )
    return figure


def _along(axes: Axes, one: xarray.Dataset, colour: str, dashes: str, label: str | None = None) -> None:
    curve = (one[name].values for name in ("along", "along_low", "along_high"))
    page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)


def _lacks(axes: Axes, one: xarray.Dataset) -> None:
    share = 10 ** np.maximum(one["unread_end"].values, _FLOOR)
    axes.plot(share, one["lack"].values, ".", color=palette.COLOURS["frobenius"], markersize=4, alpha=0.7)
    axes.axvline(10**GONE, color="black", linewidth=0.6)
    axes.set(title="(c) first layer, by seed", xscale="log", yscale="log", xlim=(1e-32, 1e2))
    axes.set(xlabel="unread positions' share of\nthe first layer's gradient", ylabel="1 - margin ratio (Frobenius)")


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    named = {name: bool(summaries[name]["named"].sel(norm="frobenius")) for name in LAYERS}
    if named["second"] and named["first"] and not named["every"]:
        return "Each layer obeys the Frobenius Att-SVM of what reaches it, the first where the second reads"
    obeyed = [words for name, words in LAYERS.items() if named[name]]
    return f"The Frobenius Att-SVM is obeyed by: {'; '.join(obeyed) or 'no layer'}"
