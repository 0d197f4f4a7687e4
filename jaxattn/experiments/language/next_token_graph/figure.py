"""The figure of next-token prediction: the direction between components, the finite part, and its probabilities."""

from __future__ import annotations

from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Cycles by their length, from light to dark.
_CYCLES = dict(zip(range(1, 6), palette.ramp(5), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction error of W and that of its last gain, the distance from W_fin, and the probabilities."""
    with page.style():
        figure = page.full(3.35)
        left, middle, right = figure.subplots(1, 3)
        for run in summaries.values():
            look = _look(run)
            colour, end = look["color"], float(run["snapshot"][-1])
            _curve(left, run, "whole", look)
            left.plot(end, float(run["increment"]), marker="D", markersize=3.5, color=colour, clip_on=False)
            if "finite" in run:
                _curve(middle, run, "finite", look)
            right.plot(run["predicted"], run["reached"], ".", color=colour, markersize=2.5, rasterized=True)
        left.set(title="(a) W turns to the\nGraph-SVM solution", ylabel="direction error, 1 - cos")
        middle.set(title="(b) In the cyclic subspace,\nW tends to $W_{fin}$", ylabel="distance from $W_{fin}$")
        for axes in (left, middle):
            axes.set(xlabel="step", xscale="log", yscale="log")
            axes.set_xticks([1, 10, 100, 1000, 10_000])
        largest = page.at_most(max(float(run["largest"]) for run in summaries.values()))
        right.plot([0, 1], [0, 1], color="black", linewidth=0.6, zorder=0)
        right.set(title=f"(c) Probabilities within\ncomponents: error $\\leq$ {largest}", aspect="equal")
        right.set(xlabel="predicted from the graph", ylabel="reached by descent")
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
        page.add_counts(
            figure,
            summaries,
            "Diamonds: direction error of what W gained in the last decade of steps, mean over seeds. "
            "Curves: geometric means over seeds with 95 % intervals.",
        )
    return figure


def _look(run: xarray.Dataset) -> dict[str, Any]:
    """Return label, colour and dashes of a run: by the length of its cycle, or by what distinguishes it."""
    attrs = run.attrs
    if attrs["data"] == "language":
        return {"label": "all words as candidates", "color": palette.INK, "linestyle": ":"}
    cycle, starts = attrs["data.cycle"], attrs["weights.starts"]
    label = f"cycles of {cycle}" if cycle > 1 else "no cycle"
    for differs, words, colour, dashes in (
        (starts > 1, f"{starts} starts", palette.WINE, "--"),
        (attrs["data"] == "token_graph_sphere", "unit sphere", palette.AMBER, "-."),
        (attrs["optimizer"] == "scale_free_gd", "normalized steps", palette.ROSE, "--"),
    ):
        if differs:
            return {"label": f"{label}, {words}", "color": colour, "linestyle": dashes}
    return {"label": label, "color": _CYCLES[cycle], "linestyle": "-"}


def _curve(axes: Axes, run: xarray.Dataset, name: str, look: dict[str, Any]) -> None:
    curve = (run[part].values for part in ("snapshot", name, f"{name}_low", f"{name}_high"))
    page.band(axes, *curve, **look, linewidth=1.2)
