"""The figure of next-token prediction: the direction between components, the finite part, and its probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

# Cycles by their length, from light to dark, and what the other runs look like.
_CYCLES = dict(zip(range(1, 6), palette.ramp(5), strict=True))
_OTHERS = ((palette.WINE, "--"), (palette.AMBER, "-."), (palette.INK, ":"), (palette.ROSE, "--"))


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the direction error of W and that of its last gain, the distance from W_fin, and the probabilities.

    Args:
        summaries: of `claims.summarize`.
    """
    looks = _looks(summaries)
    with page.style():
        figure = page.full(3.35)
        left, middle, right = figure.subplots(1, 3)
        for run, one in summaries.items():
            colour, dashes, label = looks[run]
            look = {"color": colour, "linestyle": dashes, "linewidth": 1.2}
            _curve(left, one, "whole", look | {"label": label})
            end = float(one["snapshot"][-1])
            left.plot(end, float(one["increment"]), marker="D", markersize=3.5, color=colour, clip_on=False)
            if "finite" in one:
                _curve(middle, one, "finite", look)
            right.plot(one["predicted"], one["reached"], ".", color=colour, markersize=2.5, rasterized=True)
        left.set(title="(a) W turns to the\nGraph-SVM solution", ylabel="direction error, 1 - cos")
        middle.set(title="(b) In the cyclic subspace,\nW tends to $W_{fin}$", ylabel="distance from $W_{fin}$")
        for axes in (left, middle):
            axes.set(xlabel="step", xscale="log", yscale="log")
            axes.set_xticks([1, 10, 100, 1000, 10_000])
        largest = max(float(one["largest"]) for one in summaries.values())
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


def _looks(summaries: Mapping[str, xarray.Dataset]) -> dict[str, tuple[str, str, str]]:
    """Return colour, dashes and label of every run: those from W = 0 with one-hot words by the length of the cycle."""
    looks, others = {}, iter(_OTHERS)
    for run, one in summaries.items():
        told = one.attrs
        ours = told["cycle"] in _CYCLES and told["embedding"] == "one-hot" and told["starts"] == 1
        plain = ours and told["rule"] == "plain"
        colour, dashes = (_CYCLES[told["cycle"]], "-") if plain else next(others, (palette.GUIDE, "-"))
        looks[run] = (colour, dashes, _named(one))
    return looks


def _named(one: xarray.Dataset) -> str:
    told = one.attrs
    if not told["cycle"]:
        return "all words as candidates"
    graphs = f"cycles of {told['cycle']}" if told["cycle"] > 1 else "no cycle"
    more = {
        f"{told['starts']} starts": told["starts"] > 1,
        "unit sphere": told["embedding"] != "one-hot",
        "normalized steps": told["rule"] != "plain",
    }
    return ", ".join([graphs, *(words for words, so in more.items() if so)])


def _curve(axes: Axes, one: xarray.Dataset, name: str, look: Mapping[str, Any]) -> None:
    page.band(axes, *(one[part].values for part in ("snapshot", name, f"{name}_low", f"{name}_high")), **look)


def _rounded_up(value: float) -> str:
    """Return a number of one digit that is not less."""
    power = 10.0 ** np.floor(np.log10(max(value, 1e-12)))
    return f"{np.ceil(value / power * (1 - 1e-12)) * power:.1g}"
