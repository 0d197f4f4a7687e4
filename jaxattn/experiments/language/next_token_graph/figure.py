"""The figure of next-token prediction: the direction between components, the finite part, and its probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Cycles by their length, from light to dark, and what the other runs look like.
_CYCLES = dict(zip(range(1, 6), palette.ramp(5), strict=True))
_OTHERS = ((palette.WINE, "--"), (palette.AMBER, "-."), (palette.INK, ":"), (palette.ROSE, "--"))


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the direction error of W and that of its last gain, the distance from W_fin, and the probabilities."""
    looks = _looks(summaries)
    with page.style():
        figure = page.full(3.35)
        left, middle, right = figure.subplots(1, 3)
        for name, run in summaries.items():
            colour, dashes, label = looks[name]
            look = {"color": colour, "linestyle": dashes, "linewidth": 1.2}
            _curve(left, run, "whole", look | {"label": label})
            end = float(run["snapshot"][-1])
            left.plot(end, float(run["increment"]), marker="D", markersize=3.5, color=colour, clip_on=False)
            if "finite" in run:
                _curve(middle, run, "finite", look)
            right.plot(run["predicted"], run["reached"], ".", color=colour, markersize=2.5, rasterized=True)
        left.set(title="(a) W turns to the\nGraph-SVM solution", ylabel="direction error, 1 - cos")
        middle.set(title="(b) In the cyclic subspace,\nW tends to $W_{fin}$", ylabel="distance from $W_{fin}$")
        for axes in (left, middle):
            axes.set(xlabel="step", xscale="log", yscale="log")
            axes.set_xticks([1, 10, 100, 1000, 10_000])
        largest = max(float(run["largest"]) for run in summaries.values())
        right.plot([0, 1], [0, 1], color="black", linewidth=0.6, zorder=0)
        right.set(
            title=f"(c) Probabilities within\ncomponents: error < {_rounded_up(largest)}",
            xlabel="predicted from the graph",
            ylabel="reached by descent",
            aspect="equal",
        )
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        page.add_counts(
            figure,
            summaries,
            "Diamonds: direction error of what W gained in the last decade of steps, mean over seeds. "
            "Curves: geometric means over seeds with 95 % intervals.",
        )
    return figure


def _looks(summaries: Datasets) -> dict[str, tuple[str, str, str]]:
    """Return colour, dashes and label of every run: those from W = 0 with run-hot words by the length of the cycle."""
    looks, others = {}, iter(_OTHERS)
    for name, run in summaries.items():
        cycle, sphere, starts, normalized = _settings(run)
        has_own_colour = cycle and not sphere and starts == 1 and not normalized
        colour, dashes = (_CYCLES[cycle], "-") if has_own_colour else next(others, (palette.GUIDE, "-"))
        looks[name] = (colour, dashes, _label(run))
    return looks


def _settings(run: xarray.Dataset) -> tuple[int, bool, int, bool]:
    """Return the length of the cycle, 0 for all words as candidates; and what distinguishes other runs."""
    attrs = run.attrs
    sphere, normalized = attrs["data"] == "token_graph_sphere", attrs["optimizer"] == "scale_free_gd"
    return attrs.get("data.cycle", 0), sphere, attrs["weights.starts"], normalized


def _label(run: xarray.Dataset) -> str:
    cycle, sphere, starts, normalized = _settings(run)
    if not cycle:
        return "all words as candidates"
    graphs = f"cycles of {cycle}" if cycle > 1 else "no cycle"
    more = {f"{starts} starts": starts > 1, "unit sphere": sphere, "normalized steps": normalized}
    return ", ".join([graphs, *(words for words, is_so in more.items() if is_so)])


def _curve(axes: Axes, run: xarray.Dataset, name: str, look: Mapping[str, Any]) -> None:
    page.band(axes, *(run[part].values for part in ("snapshot", name, f"{name}_low", f"{name}_high")), **look)


def _rounded_up(value: float) -> str:
    """Return a number of one digit that is not less."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-12)))
    return f"{np.ceil(value / power * (1 - 1e-12)) * power:.1g}"
