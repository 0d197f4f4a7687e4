"""The figure of the rates: 1 - cos from four starts by three rules, the sparsity, and the starts that arrive."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.rates.ngd_global.claims import NEAR, NORMALIZED, RULES, STARTS
from jaxattn.study.claims import Datasets, Judgements, family, total
from jaxattn.study.style import page, palette

_RULES = {"plain": (palette.GUIDE, ":"), "normalized": (palette.TEAL, "-"), "Polyak": (palette.WINE, "--")}
_STARTS = {
    "zero": (palette.INK, "-"),
    "small": (palette.SKY, "--"),
    "large": (palette.AMBER, "-."),
    "wrong": (palette.ROSE, ":"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel for each start, what is left beside the optimal tokens, and the shares that arrive by dimension."""
    runs = {rule: summaries[run] for rule, run in RULES.items()}
    sizes, exponents = runs["plain"].attrs, runs["normalized"]["exponent"]
    powers = " to ".join(f"$k^{{{float(end):.1f}}}$" for end in (exponents.min(), exponents.max()))
    polyak = judgements["ngd-global:polyak-rate"].verdict
    with page.style():
        figure = page.full(5.2)
        grid = figure.add_gridspec(2, 1)
        upper, lower = (figure.add_subfigure(grid[row]) for row in (0, 1))
        panels = upper.subplots(1, 4, sharey=True)
        for axes, letter, start in zip(panels, "abcd", STARTS, strict=True):
            _rates(axes, runs, start)
            axes.set_title(f"({letter}) {_written(start)}")
        panels[0].set_ylabel(r"1 - cos with $W_{mm}$")
        panels[0].legend(loc="lower left")
        rest, share = lower.subplots(1, 2)
        _rest(rest, runs)
        _shares(share, summaries)
        figure.suptitle(
            f"Normalized steps approach $W_{{mm}}$ like {powers}; Polyak's, a rate from any start: {polyak}"
        )
        page.add_counts(
            figure,
            {"all rules and dimensions": xarray.Dataset(attrs=total(summaries))},
            "(a) to (e): medians over seeds, bands from the 10th to the 90th percentile; "
            f"n = {sizes['data.n']}, T = {sizes['data.T']}, d = {sizes['data.d']}. "
            f"Percentages and (f): share of seeds with 1 - cos <= {NEAR} (grey) in the end; (f): normalized steps, "
            "95 % intervals.",
        )
    return figure


def _written(start: str) -> str:
    return STARTS[start].replace("W", "$W$")


def _rates(axes: Axes, runs: Datasets, start: str) -> None:
    for rule, (colour, dashes) in _RULES.items():
        run = runs[rule].sel(start=start)
        curve = (run[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=rule)
    for rule, height in (("normalized", 0.95), ("Polyak", 0.86)):
        text = f"{rule}: {float(runs[rule]['arrived'].sel(start=start)):.0%}"
        look = {"color": _RULES[rule][0], "fontsize": 7, "ha": "right", "va": "top"}
        axes.text(0.97, height, text, transform=axes.transAxes, **look)
    axes.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-11, 1e3))


def _rest(axes: Axes, runs: Datasets) -> None:
    for rule, (colour, dashes) in _RULES.items():
        run = runs[rule].sel(start="zero")
        look = {"color": colour, "linestyle": dashes, "marker": ".", "markersize": 4, "label": rule}
        axes.plot(run["path_50"].values, -run["log_rest_50"].values, **look)
    ends = np.array([1.0, float(runs["normalized"]["path_50"].max())])
    axes.plot(ends, ends, color="black", linewidth=0.7, label=r"$1 - s = e^{-\mathrm{path}\,/\,\|W_{mm}\|}$")
    axes.set(xscale="log", yscale="log", xlabel=r"length of the path $/\ \|W_{mm}\|_F$", ylabel=r"$-\log(1 - s)$")
    axes.set_title("(e) attention $1 - s$ left beside the optimal tokens, from $W$ = 0")
    axes.legend(loc="lower right")


def _shares(axes: Axes, summaries: Datasets) -> None:
    runs = sorted(family(summaries, NORMALIZED).values(), key=lambda run: run.attrs["data.d"])
    d = [run.attrs["data.d"] for run in runs]
    tokens = runs[0].attrs["data.n"] * runs[0].attrs["data.T"]
    for start, (colour, dashes) in _STARTS.items():
        shares = ([float(run[name].sel(start=start)) for run in runs] for name in _ARRIVED)
        page.band(axes, d, *shares, color=colour, linestyle=dashes, marker=".", label=_written(start))
    axes.axvline(tokens, color=palette.GUIDE, linewidth=0.7)
    axes.text(tokens, 0.05, "d = n T ", color=palette.GUIDE, fontsize=7, ha="right")
    axes.set(xscale="log", xlabel="dimension d", ylabel="share of seeds that arrive", ylim=(0, 1.03))
    axes.set_xticks(d, [f"{size}" for size in d])
    axes.minorticks_off()
    axes.set_title("(f) less orthogonal tokens, in fewer dimensions")
    axes.legend(loc="lower right")


_ARRIVED = ("arrived", "arrived_low", "arrived_high")
