"""The figure of the prompt: direction error and margin ratio along training, under the exact and the published rule."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.experiments.prompts.prompt.claims import STEPS
from jaxattn.study.style import page, palette

_COLOURS = {"keys X": palette.TEAL, "keys X A": palette.AMBER}
_DASHES = {"exact direction": "-", "published rule": "--"}
_KEYS = {"keys X": "$W = I$", "keys X A": "$W = A$ drawn"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the direction error, (a), and the margin ratio, (b), of every run.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.2)
        left, right = figure.subplots(1, 2, sharex=True)
        for one in summaries.values():
            steps, itself = one["snapshot"].values, one.attrs["trained"] == "p"
            colour, dashes = _COLOURS[one.attrs["keys"]], _DASHES[one.attrs["rule"]]
            label = f"{_KEYS[one.attrs['keys']]}, {one.attrs['rule']}"
            look = {"color": colour, "linestyle": dashes, "label": label}
            if itself:
                look = {"color": "black", "linestyle": "none", "marker": ".", "label": "training $p$ itself, $W = I$"}
            off = [one[f"off_{q}"].values for q in (50, 10, 90)]
            ratio = [one[name].values for name in ("ratio", "ratio_low", "ratio_high")]
            if itself:
                left.plot(steps, off[0], **look)
                right.plot(steps, ratio[0], **look)
                continue
            page.band(left, steps, *off, **look)
            page.band(right, steps, *ratio, **look)
        for axes in (left, right):
            axes.axvline(STEPS, color=palette.GUIDE, linewidth=0.8)
            axes.set(xscale="log", xlabel="step")
        left.set(yscale="log", ylabel="direction error, $1 - \\cos$")
        right.set_ylabel("margin ratio")
        left.set_title("(a) The prompt turns to $p_{mm}$; the published rule stalls\nfrom about step 1,000 on")
        right.set_title("(b) Its margin becomes the largest\n")
        left.legend(loc="lower left")
        remark = "(a): medians, bands from the 10th to the 90th percentile; (b): means with 95 % intervals."
        page.add_counts(figure, summaries, f"{remark} Grey: the paper's {STEPS:,} steps.")
    return figure
