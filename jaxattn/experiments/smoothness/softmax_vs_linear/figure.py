"""The figure of softmax attention beside linear attention: curvature and largest steps over the embeddings' scale."""

from __future__ import annotations

from collections import Counter

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.smoothness.softmax_vs_linear.measure import LINEAR, LOSSES, STEPS
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette
from jaxattn.study.style.labels import beside

_COLOURS = dict(zip(LOSSES, (palette.TEAL, palette.WINE), strict=True))
_DASHES = dict(zip(LINEAR, ("-", "--"), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw over the scale the ratio of the curvatures (a), and the share of texts with a larger step (b)."""
    summary = summaries["texts"]
    verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
    with page.style():
        figure = page.full(3.8)
        top, below = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.25, 2.6)))
        curvatures, steps = below.subplots(1, 2)
        _curves(curvatures, summary, "smoother_surely", "smoother")
        curvatures.axhline(0, color=palette.INK, linewidth=0.7)
        beside(curvatures, "equal", (summary["scale"].values[0], 0), (0, 2), ha="left", va="bottom")
        curvatures.set_ylabel("log10 of the largest curvature,\nlinear / softmax")
        _curves(steps, summary, "larger", "larger")
        steps.set(ylabel="share of texts with a larger step\nwith softmax", ylim=(-0.03, 1.03))
        for axes, words, prefix in (
            (curvatures, "(a) smaller curvature", "curvature-"),
            (steps, "(b) larger step", ""),
        ):
            found = [f"{loss}: {verdicts[prefix + loss]}" for loss in LOSSES]
            axes.set(title="\n".join([f"{words} with softmax", *found]), xlabel="scale $s$ of the embeddings")
            axes.set_xscale("log", base=2)
            axes.set_xticks(summary["scale"].values, [f"{s:g}" for s in summary["scale"].values])
            axes.minorticks_off()
        colours = {f"{loss} loss": colour for loss, colour in _COLOURS.items()}
        dashes = {f"linear attention as a {linear}": dash for linear, dash in _DASHES.items()}
        page.key(top, colours, dashes, loc="center", ncols=4)
        found = ", ".join(f"{verdict} in {count}" for verdict, count in Counter(verdicts.values()).items())
        figure.suptitle(f"Softmax more stable than linear attention, in {len(verdicts)} readings: {found}")
        page.add_counts(
            figure,
            summaries,
            "Curves: means over texts. Bands: (a) from the ratio with the proved bound of softmax's curvature to that "
            "with the largest found, with 95 % bootstrap intervals; (b) 95 % intervals of the share. A step is allowed "
            f"if it and all smaller ones tried raise the risk in none of {STEPS} steps from $W = 0$. If all steps "
            "tried are allowed with both attentions, neither counts as larger.",
            counted="texts",
        )
    return figure


def _curves(axes: Axes, summary: xarray.Dataset, low: str, high: str) -> None:
    """Draw an estimate of every loss and linear attention; its band reaches from the interval of one to another's."""
    for loss, colour in _COLOURS.items():
        for linear, dash in _DASHES.items():
            one = summary.sel(loss=loss, linear=linear)
            curve = (one[name].values for name in (high, f"{low}_low", f"{high}_high"))
            page.band(axes, one["scale"].values, *curve, color=colour, linestyle=dash, marker="o", markersize=3)
