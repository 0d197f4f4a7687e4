"""The figure of the probability of global convergence against d: a row for each kind of weights, beside the others'."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.global_probability.claims import BEYOND, curves
from jaxattn.experiments.landscape.global_probability.independent import SEEDS, by_chance, compared
from jaxattn.experiments.landscape.outcomes import by_weights
from jaxattn.experiments.landscape.rising import Curve, trend
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_MARKERS = "os^Dv"
_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}
_COUNTED = {"n": "inputs", "T": "tokens"}
_SOURCE = f"independent run of the protocol, {SEEDS} seeds"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row of two panels for W and one for (K, Q), over the number of inputs n and over that of tokens T."""
    summaries = by_weights(summaries)
    columns = {along: _fixed(summaries["W"], along) for along in _COUNTED}
    with page.style():
        figure = page.full(5.4)
        # A decade of d is equally long in all panels.
        lengths = [max(0.3, np.ptp(np.log(part["d"].values)) + 0.25) for part in columns.values()]
        grid = figure.subplots(2, 2, sharey=True, sharex="col", width_ratios=lengths)
        for axes, letter, (weights, along) in zip(
            grid.flat, "abcd", ((weights, along) for weights in summaries for along in columns), strict=True
        ):
            part = _fixed(summaries[weights], along)
            _curves(axes, part, along, weights)
            _independent(axes, part, weights)
            other = "T" if along == "n" else "n"
            found = _found(curves(part, along), part, along)
            axes.set_title(f"({letter}) training {_TRAINED[weights]}, ${other} = {int(part[other][0])}$: {found}")
            handles = axes.get_legend_handles_labels()[0]
            # The independent run is in the keys of the wide panels, where there is room for it.
            shown = [one for one in handles if along == "T" or one.get_label() != _SOURCE]
            axes.legend(handles=shown, loc="lower right")
        for axes, part in zip(grid[1], columns.values(), strict=True):
            d = np.unique(part["d"].values)
            axes.set(xlabel="dimension $d$", xscale="log", ylim=(-0.02, 1.04))
            axes.set_xticks(d, [f"{size}" for size in d])
            axes.minorticks_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("probability of the optimal tokens")
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _fixed(summary: xarray.Dataset, along: str) -> xarray.Dataset:
    """Return the runs in which the other of n and T has its smallest size."""
    other = summary["T" if along == "n" else "n"]
    return summary.isel(run=(other == other.min()).values)


def _found(points: list[Curve], part: xarray.Dataset, along: str) -> str:
    """Say in which dimensions the probability falls with this size, by the rule of the claims, and where it rises."""
    if not points:
        return f"a single number of {_COUNTED[along]} ${along}$"
    of_run = dict(zip(part["run"].values.tolist(), part["d"].values.tolist(), strict=True))
    found = trend(points, up=False)
    level = sorted(of_run[run] for run in found.level)
    falls = sorted({of_run[curve[-1].run] for curve in points} - set(level))
    lower = f"lower with more {_COUNTED[along]} ${along}$"
    if found.against:
        against = sorted({of_run[said.partition(" to ")[0]] for said in found.against})
        return f'refutes "{lower}": it rises at {_listed(against)}'
    if not falls:
        return f"not {lower} at any $d$"
    return lower + (f"; not shown at {_listed(level)}" if level else f", from $d = {falls[0]}$ to {falls[-1]}")


def _listed(sizes: list[int]) -> str:
    return f"$d = {sizes[0]}$" + "".join(f", {size}" for size in sizes[1:])


def _remark(summaries: Datasets) -> str:
    seeds = np.unique(np.concatenate([one["seeds"].values for one in summaries.values()]))
    spread = f"{seeds[0]:,}" if len(seeds) == 1 else f"{seeds[0]:,} to {seeds[-1]:,}"
    said = f"Coloured bars: 95 % intervals, {spread} seeds."
    if any(one.attrs.get("ambiguous") for one in summaries.values()):
        said = f"Ambiguous: softmax not saturated, counts as not optimal. {said}"
    off = compared(summaries)
    beyond = sum(abs(one.errors) > BEYOND for one in off.values())
    return said + (
        f" Black bars: {BEYOND} standard errors of the difference from the independent run. {beyond} of {len(off)} "
        f"differences are larger; chance gives up to {by_chance(len(off))} (95 % of cases)."
        if off
        else ""
    )


def _curves(axes: Axes, part: xarray.Dataset, along: str, weights: str) -> None:
    sizes = np.unique(part[along].values)
    for size, colour, marker in zip(sizes, palette.ramp(len(sizes)), cycle(_MARKERS), strict=False):
        one = part.isel(run=(part[along] == size).values).sortby("d")
        mean = one["global"].values
        axes.errorbar(
            one["d"].values,
            mean,
            np.clip([mean - one["global_low"].values, one["global_high"].values - mean], 0, None),
            color=colour,
            marker=marker,
            markersize=3.5,
            elinewidth=0.8,
            linestyle=palette.DASHES[weights],
            label=f"${along} = {size}$",
        )


def _independent(axes: Axes, part: xarray.Dataset, weights: str) -> None:
    """Mark the probabilities of the independent run, each with two standard errors of the difference from it."""
    off = compared({weights: part})
    if not off:
        return
    points = np.array([(float(part["d"].sel(run=run)), one.share, one.error) for run, one in off.items()])
    d, share, error = points.T
    ends = np.clip([share - BEYOND * error, share + BEYOND * error], 0, 1)
    axes.vlines(1.035 * d, *ends, color=palette.INK, linewidth=0.7, zorder=5)
    palette.published(axes, 1.035 * d, share, _SOURCE, prefix="")
