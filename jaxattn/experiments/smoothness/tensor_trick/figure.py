"""The tensor-trick figure: how far the two forms are apart, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.smoothness.tensor_trick.claims import SAME
from jaxattn.study.style import page, palette

_LOSSES = ((palette.TEAL, "o"), (palette.AMBER, "s"), (palette.WINE, "^"))
_FORMS = (palette.WINE, palette.TEAL, palette.INK)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the largest differences against the size, and the costs against d and against n.

    Args:
        summaries: "texts", as `claims.summarize` returns it.
    """
    summary = summaries["texts"]
    with page.style():
        figure = page.full(3.7)
        apart, of_d, of_n = figure.subplots(1, 3)
        _differences(apart, summary)
        for axes, name, other, panel in ((of_d, "d", "n", "b"), (of_n, "n", "d", "c")):
            # Of the sizes that share the other one, the most.
            values, times = np.unique(summary[other].values, return_counts=True)
            fixed = int(values[np.argmax(times)])
            chosen = summary.isel(run=(summary[other] == fixed).values).sortby(name)
            _costs(axes, chosen, name)
            axes.set(title=f"({panel}) cost of the scores, ${other} = {fixed}$")
        of_d.set(xlabel="dimension $d$ of an embedding", ylabel="multiply-adds; numbers held")
        of_n.set(xlabel="words $n$ of a sequence")
        of_d.sharey(of_n)
        of_d.legend(handles=_legend(summary), loc="upper left")
        of_d.set_ylim(10, 300 * float(summary["products"].max()))
        m, V, seeds = (int(summary[name].values.flat[0]) for name in ("m", "V", "seeds"))
        page.add_counts(
            figure,
            summaries,
            f"(a) tensor trick against pairs of words, the form that all else here uses: the largest of {seeds} texts "
            f"a size or more; 0 at the lower edge. (b), (c) counted, not timed: {m} sequences, a vocabulary of {V}. "
            "labels: texts in which no prefix has a choice.",
            counted="texts",
        )
    return figure


def _differences(axes: Axes, summary: xarray.Dataset) -> None:
    size = summary["n"].values - 1
    size = (size * summary["d"].values) ** 2
    rounding = np.finfo(float).eps / 2
    for (colour, marker), loss in zip(_LOSSES, summary["loss"].values, strict=True):
        for name, filled in (("risk", "none"), ("gradient", colour)):
            axes.plot(
                size,
                np.maximum(summary[name].sel(loss=loss).values, rounding / 4),
                marker,
                color=colour,
                markerfacecolor=filled,
                markersize=4,
                linestyle="none",
                label=f"{name}, {loss}",
            )
    axes.axhline(SAME, color="black", linewidth=0.8, linestyle="--")
    axes.axhline(rounding, color="black", linewidth=0.8, linestyle=":")
    right = axes.get_yaxis_transform()
    axes.text(0.98, 1.2 * SAME, "the claim's bound", transform=right, ha="right", va="bottom", fontsize=7)
    axes.text(0.98, 0.85 * rounding, "rounding of one number", transform=right, ha="right", va="top", fontsize=7)
    axes.set(
        title="(a) difference of the two forms",
        xlabel=r"entries of $A_1 \otimes A_2$, $(n - 1)^2 d^2$",
        ylabel="largest relative difference",
        xscale="log",
        yscale="log",
        ylim=(rounding / 5, 1e-10),
    )
    axes.legend(loc="upper left", ncols=2, columnspacing=0.8, handletextpad=0.2)


def _costs(axes: Axes, chosen: xarray.Dataset, name: str) -> None:
    for colour, form in zip(_FORMS, chosen["form"].values, strict=True):
        for cost, dash in (("products", "-"), ("held", "--")):
            numbers = chosen[cost].sel(form=form).values
            axes.plot(chosen[name].values, numbers, dash, color=colour, marker="o", markersize=3)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(chosen[name].values, [str(size) for size in chosen[name].values])
    axes.minorticks_off()


def _legend(summary: xarray.Dataset) -> list[Line2D]:
    forms = [Line2D([], [], color=c, label=str(f)) for c, f in zip(_FORMS, summary["form"].values, strict=True)]
    full = Line2D([], [], color=palette.GUIDE, linestyle="-", label="multiply-adds")
    return [*forms, full, Line2D([], [], color=palette.GUIDE, linestyle="--", label="numbers held")]
