"""The figure of the factors' width: what descent reaches at every width, and where the bound on the rank is active."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from jaxattn.experiments.local.factor_width.claims import AS_GOOD, CLAIMS, REACHED, SAME
from jaxattn.study.claims import refuted, total
from jaxattn.study.style import labels, page, palette

_SOLUTIONS = {
    "nuclear": ("nuclear solution", palette.NUCLEAR, "s", "--"),
    "bounded": ("best of rank $m$", palette.AMBER, "^", ":"),
    "nearest": ("stationary\npoint reached", palette.TEAL, "o", "-"),
}
# Norms that agree to this are drawn here; and direction errors below what rounding leaves.
_FLOOR, _LEAST = 1e-12, 1e-16


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the direction errors at the last step over m, and the excess of every seed over rank - m.

    Args:
        summaries: of `claims.summarize`, by increasing width.
    """
    every = list(summaries.values())
    with page.style():
        figure = page.full(3.2)
        reached, active = figure.subplots(1, 2)
        _reached(reached, every)
        reached.set_title(f"(a) {_found(summaries)}")
        _active(active, every)
        remark = (
            "(a): means with 95 % intervals; the best solution of rank $m$ is the best one found. (b): a dot for each "
            "kept run, moved sideways within its rank."
        )
        runs = f"{len(every)} widths"
        page.add_counts(figure, {runs: xarray.Dataset(attrs=total(summaries))}, remark, "runs")
    return figure


def _reached(axes: Axes, every: list[xarray.Dataset]) -> None:
    x, ends = np.arange(len(every)), []
    for name, (label, colour, marker, dashes) in _SOLUTIONS.items():
        own = [one.sel(solution=name) for one in every]
        mean, low, high = (
            np.maximum(1 - np.array([float(one[f"correlation{part}"]) for one in own]), _LEAST)
            for part in ("", "_high", "_low")
        )
        errors = np.clip([mean - low, high - mean], 0, None)
        look = {"color": colour, "marker": marker, "markersize": 4, "elinewidth": 0.8, "linestyle": dashes}
        axes.errorbar(x, mean, errors, **look)
        ends.append(labels.End(label, 0.0, float(mean[0]), colour))
    axes.set_xticks(x, [str(one.attrs["width"]) for one in every])
    axes.set(xlabel="columns $m$ of $K$ and $Q$", ylabel="final direction error, 1 - cos", yscale="log")
    # Room for the labels.
    axes.set_xlim(-0.5 * len(every), len(every) - 0.7)
    axes.set_ylim(0.6 * axes.get_ylim()[0], None)
    labels.beside_ends(axes, ends, "left")


def _found(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say at which widths descent reaches no stationary point or not the best, and whether that refutes the claim."""
    says = "claim refuted: " if "factor-width:reaches" in refuted(CLAIMS, summaries) else ""
    every = list(summaries.values())
    missed = [one for one in every if float(one["correlation"].sel(solution="nearest")) < REACHED]
    if missed:
        return f"{says}descent reaches no stationary point at {_widths(missed)}"
    other = [one for one in every if float(one["advantage_low"]) > AS_GOOD]
    if other:
        return f"{says}at {_widths(other)} descent reaches a stationary point that is not the best"
    return f"{says}descent reaches the best solution of rank $m$ found at every $m$"


def _widths(every: list[xarray.Dataset]) -> str:
    return f"$m = {', '.join(str(one.attrs['width']) for one in every)}$"


def _active(axes: Axes, every: list[xarray.Dataset]) -> None:
    found = {True: [0, 0], False: [0, 0]}
    for one, colour in zip(every, palette.ramp(len(every)), strict=True):
        beyond, excess = one["rank"].values - one.attrs["width"], one["excess"].values
        for is_above, counted in found.items():
            here = (beyond > 0) == is_above
            counted[0] += int((excess[here] > SAME).sum())
            counted[1] += int(here.sum())
        x = beyond + np.linspace(-0.25, 0.25, len(beyond))
        label = f"$m = {one.attrs['width']}$"
        axes.scatter(x, np.maximum(excess, _FLOOR), s=5, color=colour, label=label, rasterized=True)
    axes.set(xlabel="rank of the nuclear solution minus $m$", ylabel="relative excess of the norm", yscale="log")
    axes.axvline(0.5, color=palette.GUIDE, linewidth=0.8)
    axes.axhline(SAME, color=palette.GUIDE, linewidth=0.8, linestyle="--", zorder=1)
    axes.annotate(
        "accuracy of the norms", (0, SAME), (3, 2), xycoords=axes.get_yaxis_transform(), textcoords="offset points"
    ).set(fontsize=page.SMALLEST, color=palette.GUIDE)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ticks = 10.0 ** np.arange(-12, 3, 3)
    axes.yaxis.set_major_locator(FixedLocator(ticks.tolist()))
    axes.set_yticks(ticks, [r"$\leq10^{-12}$", *(f"$10^{{{round(np.log10(tick))}}}$" for tick in ticks[1:])])
    axes.set_ylim(_FLOOR / 4, None)
    axes.legend(loc="upper left", markerscale=2, borderaxespad=0.2, labelspacing=0.3)
    above, up_to = _share(*found[True]), _share(*found[False])
    axes.set_title(f"(b) the bound is active in {above} of rank above $m$ and in {up_to} of rank up to $m$")


def _share(active: int, every: int) -> str:
    if every and active == every:
        return f"all {every:,} runs"
    return f"{active:,} of {every:,} runs" if active else f"none of {every:,}"
