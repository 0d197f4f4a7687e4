"""The figure of two layers: margin ratios of each along the steps, and the first layer's against unread positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.depth.claims import EVERY, FIRST, GONE, SECOND
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Smaller shares are drawn here, as decimal logarithms.
_FLOOR = -30.0


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the ratios of both layers, and of every seed what lacks of the first one's against the unread share."""
    first, every = summaries[FIRST], summaries[EVERY]
    last = int(first["snapshot"][-1])
    with page.style():
        figure = page.full(3.2)
        left, middle, right = figure.subplots(1, 3)
        for axes, layer, title in ((left, SECOND, "(a) second layer"), (middle, FIRST, "(b) first layer")):
            for norm, label in page.NORMS.items():
                look = {"color": palette.COLOURS[norm], "linestyle": palette.DASHES[norm], "label": label}
                _draw_curve(axes, summaries[layer].sel(norm=norm), **look)
            axes.set(title=title)
        _draw_curve(middle, every.sel(norm="frobenius"), color=palette.GUIDE, linestyle=":")
        for axes in (left, middle):
            axes.axhline(CLOSE, color="black", linewidth=0.6)
            axes.set(xlabel="step", xscale="log", ylim=(-0.55, 1.03))
        left.set_ylabel("margin ratio")
        left.legend(loc="lower right", handlelength=1.2)
        middle.text(last, -0.1, "every\nposition", color=palette.GUIDE, fontsize=7, ha="right", va="top")
        share = 10 ** np.maximum(first["unread_end"].values, _FLOOR)
        right.plot(share, first["lack"].values, ".", color=palette.COLOURS["frobenius"], markersize=4, alpha=0.7)
        right.axvline(10**GONE, color="black", linewidth=0.6)
        right.set(title="(c) first layer, by seed", xscale="log", yscale="log", xlim=(1e-32, 1e2))
        right.set(
            xlabel="unread positions' share of\nthe first layer's gradient", ylabel="1 - margin ratio (Frobenius)"
        )
        figure.suptitle(_finding(summaries))
        page.add_counts(
            figure,
            {"two layers": first},
            f"(a), (b): means over seeds with 95 % intervals; line: {CLOSE}, above which a norm can be named. "
            "(b), colours: the Att-SVM over the positions that the second layer reads; grey: over every position, "
            f"Frobenius. (c): a dot a seed at step {last:,}; shares below 1e{_FLOOR:.0f} are "
            f"drawn there; line: a share of .01, below which it ends in {float(first['gone']):.0%} of the seeds.",
        )
    return figure


def _draw_curve(axes: Axes, layer: xarray.Dataset, **look: Any) -> None:
    page.band(axes, *(layer[name].values for name in ("snapshot", "curve", "curve_low", "curve_high")), **look)


def _finding(summaries: Datasets) -> str:
    obeyed = [layer for layer, summary in summaries.items() if bool(summary["named"].sel(norm="frobenius"))]
    if obeyed == [SECOND, FIRST]:
        return "Each layer obeys the Frobenius Att-SVM of what reaches it, the first where the second reads"
    return f"The Frobenius Att-SVM is obeyed by: {'; '.join(obeyed) or 'no layer'}"
