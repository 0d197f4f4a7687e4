"""The figure of next-token prediction: the direction between components, the finite part, and its probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Cycles by their length, from light to dark.
_CYCLES = dict(zip(range(1, 6), palette.ramp(5), strict=True))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction error of W and that of its last gain, the distance from W_fin, and errors of probabilities."""
    drawn = _drawn(list(summaries.values()))
    with page.style():
        figure = page.full(3.9)
        top, below = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.4, 2.6)))
        left, middle, right = below.subplots(1, 3)
        for run in drawn:
            look = _look(run)
            colour, end = look["color"], float(run["snapshot"][-1])
            _curve(left, run, "whole", look)
            left.plot(end, float(run["increment"]), marker="D", markersize=3.5, color=colour, clip_on=False)
            if "finite" in run:
                _curve(middle, run, "finite", look)
            off = run["reached"] - run["predicted"]
            right.plot(run["predicted"], off, ".", color=colour, markersize=2.5, rasterized=True)
        verdicts = {name.partition(":")[2]: one.verdict for name, one in judgements.items()}
        left.set(
            title=f"(a) direction, the\nGraph-SVM solution: {verdicts['direction']}", ylabel="direction error, 1 - cos"
        )
        middle.set(
            title=f"(b) cyclic subspace,\n$W_{{fin}}$: {verdicts['finite-part']}", ylabel="distance from $W_{fin}$"
        )
        for axes in (left, middle):
            axes.set(xlabel="step", xscale="log", yscale="log")
            axes.set_xticks([1, 10, 100, 1000, 10_000])
        largest = page.at_most(max(float(run["largest"]) for run in summaries.values()))
        right.axhline(0, color="black", linewidth=0.6, zorder=0)
        right.set(title=f"(c) probabilities:\nerror $\\leq$ {largest}", xlim=(0, 1))
        right.set(xlabel="predicted from the graph", ylabel="reached by descent, less predicted")
        top.legend(*left.get_legend_handles_labels(), loc="center", ncols=3)
        figure.suptitle(
            "From any start, $W$ converges to the Graph-SVM direction, with a finite part in cycles: "
            f"{verdicts['global']}"
        )
        page.add_counts(
            figure,
            summaries,
            "Diamonds: direction error of what W gained in the last decade of steps, mean over seeds. "
            "Curves: geometric means over seeds with 95 % intervals. With all words as candidates, W first passes "
            "beyond $W_{fin}$ and then returns. Not drawn: shorter cycles, and other starts.",
        )
    return figure


def _drawn(runs: Sequence[xarray.Dataset]) -> list[xarray.Dataset]:
    """Return the runs with one start per text; of those that differ in the cycle alone, the first and the last."""
    alone = [run for run in runs if run.attrs["weights.starts"] == 1]
    between = [run for run in alone if _look(run)["linestyle"] == "-"][1:-1]
    return [run for run in alone if all(run is not other for other in between)]


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
