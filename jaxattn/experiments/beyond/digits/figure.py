"""The figure of the digits: margin ratios on patches and on the sphere, and 1 - cos along the steps."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.digits.claims import OWN
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Of each token law: its name in (a) and in the other panels, and how its curves are drawn.
_LAWS = {
    "class": ("digits, a query a class", "digits, class", {"color": palette.TEAL, "linestyle": "-"}),
    "patch": ("digits, first patch as query", "digits, patch", {"color": palette.WINE, "linestyle": "--"}),
    "sphere": ("sphere", "sphere", {"color": palette.GUIDE, "linestyle": ":"}),
}
_MARKS = {"frobenius": "o", "nuclear": "s"}
_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the ratios of every run, and the distances of W and of (K, Q) from the solution that each obeys."""
    runs = {
        (weights, law): summaries[f"{weights}, {law}"]
        for weights in OWN
        for law in _LAWS
        if f"{weights}, {law}" in summaries
    }
    with page.style():
        figure = page.full(3.3)
        left, *right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
        _draw_ratios(left, runs)
        for axes, trained, letter in zip(right, OWN, "bc", strict=True):
            for law, run in ((law, run) for (weights, law), run in runs.items() if weights == trained):
                _, label, look = _LAWS[law]
                if not np.isnan(exponent := float(run["exponent"])):
                    label += f": $k^{{{exponent:.2f}}}$"
                curve = (run[f"off_{q}"].values for q in (50, 10, 90))
                page.band(axes, run["snapshot"].values, *curve, label=label, **look)
            axes.set(xscale="log", yscale="log", xlabel="step")
            axes.set_title(f"({letter}) training {_TRAINED[trained]}:\n{page.NORMS[OWN[trained]]}")
            axes.legend(loc="lower left", handlelength=1.5)
        right[0].set_ylabel("1 - cos")
        named = [bool(run["named"].sel(norm=OWN[weights])) for (weights, law), run in runs.items() if law != "sphere"]
        figure.suptitle(
            f"On patches of digits {sum(named)} of {len(named)} runs obey the Att-SVM that the theory names"
        )
        patch = runs["W", "patch"]
        page.add_counts(
            figure,
            summaries,
            f"(a): means with 95 % intervals; grey: {CLOSE}, above which a norm can be named. "
            "(b), (c): medians over seeds, bands from the 10th to the 90th percentile. "
            f"First patch as query: the optimal tokens can be separated in {float(patch['separable']):.0%} of the "
            f"problems; training W selects all of them in {float(patch['all_optimal']):.0%}.",
        )
    return figure


def _draw_ratios(axes: Axes, runs: dict[tuple[str, str], xarray.Dataset]) -> None:
    rows = np.arange(len(runs))
    for norm, mark in _MARKS.items():
        ratio, low, high = (
            np.array([float(run[name].sel(norm=norm)) for run in runs.values()])
            for name in ("ratio", "ratio_low", "ratio_high")
        )
        look = {"marker": mark, "markersize": 4, "color": palette.COLOURS[norm], "label": page.NORMS[norm]}
        axes.errorbar(ratio, rows, xerr=[ratio - low, high - ratio], linestyle="none", **look)
    axes.axvline(CLOSE, color=palette.GUIDE, linewidth=0.8)
    labels = [f"{_TRAINED[weights]}, {_LAWS[law][0].replace(', ', chr(10))}" for weights, law in runs]
    axes.set_yticks(rows, labels, fontsize=7)
    axes.set(xlabel="margin ratio", xlim=(0.3, 1.02), ylim=(len(rows) - 0.5, -0.5))
    axes.set_title("(a) margin ratios at the end")
    axes.legend(loc="lower left")
