"""The figure of the digits: margin ratios on patches and on the sphere, and 1 - cos along the steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.bias.verdict import CLOSE
from jaxattn.experiments.beyond.digits.claims import OWN, exponent
from jaxattn.study.style import page, palette

_LAWS = {
    "class": ("digits, a query a class", palette.TEAL, "-"),
    "patch": ("digits, first patch as query", palette.WINE, "--"),
    "sphere": ("sphere", palette.GUIDE, ":"),
}
_SHORT = {"class": "digits, class", "patch": "digits, patch", "sphere": "sphere"}
_MARKS = {"frobenius": "o", "nuclear": "s"}
_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the ratios of every run, and the distances of W and of (K, Q) from the solution that each obeys.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.3)
        left, *right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
        _ratios(left, summaries)
        for axes, weights, letter in zip(right, OWN, "bc", strict=True):
            for one in (one for one in summaries.values() if one.attrs["weights"] == weights):
                _, colour, dashes = _LAWS[one.attrs["tokens"]]
                label, found = _SHORT[one.attrs["tokens"]], exponent(one).mean
                label += "" if np.isnan(found) else f": $k^{{{found:.2f}}}$"
                curve = (one[f"off_{q}"].values for q in (50, 10, 90))
                page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
            axes.set(xscale="log", yscale="log", xlabel="step")
            axes.set_title(f"({letter}) training {_TRAINED[weights]}:\n{page.NORMS[OWN[weights]]}")
            axes.legend(loc="lower left", handlelength=1.5)
        right[0].set_ylabel("1 - cos")
        figure.suptitle(_finding(summaries))
        page.add_counts(figure, summaries, _key(summaries))
    return figure


def _ratios(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    rows = [one for weights in OWN for one in summaries.values() if one.attrs["weights"] == weights]
    for k, one in enumerate(rows):
        for norm, mark in _MARKS.items():
            at = one.sel(norm=norm)
            mean, low, high = (float(at[f"ratio{part}"]) for part in ("", "_low", "_high"))
            axes.errorbar(
                mean,
                k,
                xerr=[[mean - low], [high - mean]],
                marker=mark,
                markersize=4,
                color=palette.COLOURS[norm],
                linestyle="none",
                label=page.NORMS[norm] if k == 0 else None,
            )
    axes.axvline(CLOSE, color=palette.GUIDE, linewidth=0.8)
    labels = [
        f"{_TRAINED[one.attrs['weights']]}, {_LAWS[one.attrs['tokens']][0].replace(', ', chr(10))}" for one in rows
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.set(xlabel="margin ratio", xlim=(0.3, 1.02), ylim=(len(rows) - 0.5, -0.5))
    axes.set_title("(a) margin ratios at the end")
    axes.legend(loc="lower left")


def _finding(summaries: Mapping[str, xarray.Dataset]) -> str:
    digits = [one for one in summaries.values() if one.attrs["tokens"] != "sphere"]
    named = [bool(one["named"].sel(norm=OWN[one.attrs["weights"]])) for one in digits]
    return f"On patches of digits {sum(named)} of {len(named)} runs obey the Att-SVM that the theory names"


def _key(summaries: Mapping[str, xarray.Dataset]) -> str:
    lines = [
        f"(a): means with 95 % intervals; grey: {CLOSE}, above which a norm can be named.",
        "(b), (c): medians over seeds, bands from the 10th to the 90th percentile.",
    ]
    for one in summaries.values():
        if (one.attrs["tokens"], one.attrs["weights"]) == ("patch", "W"):
            separable, selected = float(one["separable"]), float(one["all_optimal"])
            lines.append(
                f"First patch as query: the optimal tokens can be separated in {separable:.0%} of the problems; "
                f"training W selects all of them in {selected:.0%}."
            )
    return " ".join(lines)
