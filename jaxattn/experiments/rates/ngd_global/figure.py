"""The figure of the rates: 1 - cos from three starts by three rules, and the starts that arrive."""

from __future__ import annotations

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
_WRITTEN = {start: words.replace("W", "$W$") for start, words in STARTS.items()}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a panel for each of three starts, and the shares that arrive by dimension."""
    runs = {rule: summaries[run] for rule, run in RULES.items()}
    sizes, exponents = runs["plain"].attrs, runs["normalized"]["exponent"]
    powers = " to ".join(f"$k^{{{float(end):.1f}}}$" for end in (exponents.min(), exponents.max()))
    normalized, polyak = (judgements[f"ngd-global:{name}-rate"].verdict for name in ("normalized", "polyak"))
    with page.style():
        figure = page.full(5.0)
        (zero, large), (wrong, share) = figure.subplots(2, 2)
        for axes, letter, start in ((zero, "a", "zero"), (large, "b", "large"), (wrong, "c", "wrong")):
            _rates(axes, runs, start)
            axes.set_title(f"({letter}) from {_WRITTEN[start]}")
            axes.set_ylabel("direction error, $1 - \\cos$")
        zero.legend(loc="lower left", title="medians, 10th to 90th percentile")
        _shares(share, summaries)
        figure.suptitle(f"Rates from any start. Normalized steps, {powers}: {normalized}; Polyak's steps: {polyak}")
        page.add_counts(
            figure,
            {"all rules and dimensions": xarray.Dataset(attrs=total(summaries))},
            f"(a) to (c): n = {sizes['data.n']}, T = {sizes['data.T']}, d = {sizes['data.d']}; from small random W as "
            f"in (a). Percentages and (d): share of seeds with 1 - cos <= {NEAR} in the end; (d): normalized steps.",
        )
    return figure


def _rates(axes: Axes, runs: Datasets, start: str) -> None:
    for rule, (colour, dashes) in _RULES.items():
        run = runs[rule].sel(start=start)
        curve = (run[f"off_{q}"].values for q in (50, 10, 90))
        page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=dashes, label=rule)
    for rule, height in (("normalized", 0.58), ("Polyak", 0.49)):
        text = f"{rule}: {float(runs[rule]['arrived'].sel(start=start)):.0%}"
        axes.text(0.03, height, text, transform=axes.transAxes, color=_RULES[rule][0], fontsize=7, va="top")
    axes.axhline(NEAR, color=palette.GUIDE, linewidth=0.7)
    # No direction error exceeds 2.
    axes.set(xscale="log", yscale="log", xlabel="step", ylim=(1e-9, 2))


def _shares(axes: Axes, summaries: Datasets) -> None:
    runs = sorted(family(summaries, NORMALIZED).values(), key=lambda run: run.attrs["data.d"])
    d = [run.attrs["data.d"] for run in runs]
    tokens = runs[0].attrs["data.n"] * runs[0].attrs["data.T"]
    for start, (colour, dashes) in _STARTS.items():
        shares = ([float(run["arrived" + part].sel(start=start)) for run in runs] for part in ("", "_low", "_high"))
        page.band(axes, d, *shares, color=colour, linestyle=dashes, marker=".", label=_WRITTEN[start])
    axes.axvline(tokens, color=palette.GUIDE, linewidth=0.7)
    axes.text(tokens, 0.05, "d = n T ", color=palette.GUIDE, fontsize=7, ha="right")
    axes.set(xscale="log", xlabel="dimension d", ylabel="share of seeds that arrive", ylim=(0, 1.03))
    axes.set_xticks(d, [f"{size}" for size in d])
    axes.minorticks_off()
    axes.set_title("(d) less orthogonal tokens, in fewer dimensions")
    axes.legend(loc="lower right", title="share with its 95 % interval")
