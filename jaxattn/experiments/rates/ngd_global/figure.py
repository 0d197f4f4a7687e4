"""The figure of the rates: 1 - cos from four starts by three rules, the sparsity, and the starts that arrive."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.rates.ngd_global.claims import ALL, NEAR, NORMALIZED, RULES, STARTS
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
    sizes = runs["plain"].attrs
    with page.style():
        figure = page.full(5.2)
        grid = figure.add_gridspec(2, 1)
        upper, lower = (figure.add_subfigure(grid[row]) for row in (0, 1))
        panels = dict(zip(STARTS, upper.subplots(1, 4, sharey=True), strict=True))
        for letter, start in zip("abcd", STARTS, strict=True):
            axes = panels[start]
            _rates(axes, runs, start)
            axes.set_title(f"({letter}) {STARTS[start].replace('W', '$W$')}")
        panels["zero"].set_ylabel(r"1 - cos with $W_{mm}$")
        panels["zero"].legend(loc="lower left")
        rest, share = lower.subplots(1, 2)
        _rest(rest, runs)
        _shares(share, summaries)
        polyak = runs["Polyak"]["arrived"].values
        far = "Polyak's also from far away" if polyak[2:].min() >= ALL else "Polyak's steps overshoot from far away"
        near = runs["normalized"]["exponent"].values
        figure.suptitle(
            f"Normalized steps approach $W_{{mm}}$ like $k^{{{near.min():.1f}}}$ to $k^{{{near.max():.1f}}}$ from all "
            f"starts; {far}",
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


def _rates(axes: Axes, runs: Datasets, start: str) -> None:
    for rule, (colour, dashes) in _RULES.items():
        one = runs[rule].sel(start=start)
        curve = (one[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, one["snapshot"].values, *curve, color=colour, linestyle=dashes, label=rule)
        if rule != "plain":
            below = rule == "Polyak"
            axes.text(
                0.97,
                0.86 if below else 0.95,
                f"{rule}: {float(one['arrived']):.0%}",
                color=colour,
                fontsize=7,
                ha="right",
                va="top",
                transform=axes.transAxes,
            )
    axes.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-11, 1e3))


def _rest(axes: Axes, runs: Datasets) -> None:
    for rule, (colour, dashes) in _RULES.items():
        one = runs[rule].sel(start="zero")
        axes.plot(
            one["path_50"].values,
            -one["log_rest_50"].values,
            color=colour,
            linestyle=dashes,
            marker=".",
            markersize=4,
            label=rule,
        )
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
        share, low, high = (np.array([float(one.sel(start=start)[f"arrived{end}"]) for one in runs]) for end in _ENDS)
        page.band(
            axes,
            d,
            share,
            low,
            high,
            color=colour,
            linestyle=dashes,
            marker=".",
            label=STARTS[start].replace("W", "$W$"),
        )
    axes.axvline(tokens, color=palette.GUIDE, linewidth=0.7)
    axes.text(tokens, 0.05, "d = n T ", color=palette.GUIDE, fontsize=7, ha="right")
    axes.set(xscale="log", xlabel="dimension d", ylabel="share of seeds that arrive", ylim=(0, 1.03), xticks=d)
    axes.set_xticklabels(list(map(str, d)))
    axes.minorticks_off()
    axes.set_title("(f) less orthogonal tokens, in fewer dimensions")
    axes.legend(loc="lower right")


_ENDS = ("", "_low", "_high")
