"""The figure of the convergence types: shares of runs against d that are not global, not local, and all support."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from jaxattn.experiments.landscape.outcomes import by_weights
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# So that W and (K, Q) do not cover each other.
_ASIDE = {"W": 0.97, "KQ": 1.03}
_LABELS = {
    ("W", "own"): "$W$: Frobenius SVM",
    ("KQ", "own"): r"$KQ^\top$: nuclear SVM",
    ("KQ", "frobenius"): r"$KQ^\top$: Frobenius SVM",
}


class _Shares(NamedTuple):
    """Shares of runs against d, with their 95 % intervals; NaN where there are no runs."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw three panels on the same logarithmic axis, with zeros at its floor."""
    summaries = by_weights(summaries)
    seeds = max(int(one["seeds"].max()) for one in summaries.values())
    # Half of the smallest share that is not zero.
    floor = 0.5 / seeds
    with page.style():
        figure = page.full(3.3)
        panels = figure.subplots(1, 3, sharey=True)
        for axes, of_panel in zip(panels, (_not_global, _not_local, _all_support), strict=True):
            of_panel(axes, summaries, floor)
            d = np.unique(np.concatenate([one["d"].values for one in summaries.values()]))
            axes.axhline(floor, color=palette.GUIDE, linewidth=0.7, linestyle=":", zorder=1)
            axes.set(xscale="log", yscale="log", ylim=(0.75 * floor, 1.3), xlabel="dimension $d$")
            axes.set_xlim(0.8 * d[0], 1.25 * d[-1])
            axes.set_xticks(d, [f"{size}" for size in d])
            axes.xaxis.set_minor_locator(NullLocator())
        decades = np.arange(np.ceil(np.log10(2 * floor) - 1e-9), 1)
        panels[0].yaxis.set_major_locator(FixedLocator([floor, *10**decades]))
        panels[0].set_yticklabels(["none", *(f"{100 * 10**power:g} %" for power in decades)])
        panels[0].set_ylabel("share of runs")
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _not_global(axes: Axes, summaries: Datasets, floor: float) -> None:
    ends = []
    for run, one in summaries.items():
        shares = _complement(one.sel(type="global"), "up_to")
        _curve(axes, one, run, shares, floor, page.RUNS[run], palette.DASHES[run])
        ends.append((shares.mean[0], shares.mean[-1], page.RUNS[run]))
    falls = "falls from " if all(last < first for first, last, _ in ends) else ""
    said = ", ".join(f"{' to '.join(dict.fromkeys(map(_percent, shares)))} ({run})" for *shares, run in ends)
    axes.set_title(f"(a) not global: {falls}{said}")
    axes.legend(loc="upper right")


def _not_local(axes: Axes, summaries: Datasets, floor: float) -> None:
    """Draw the saturated runs that are not local, by the SVM of their weights, those of (K, Q) by the Frobenius too."""
    elsewhere, saturated = (sum(int(one[name].sum()) for one in summaries.values()) for name in _OWN)
    for run, one in summaries.items():
        _curve(axes, one, run, _complement(one, "by_own"), floor, _LABELS[run, "own"], palette.DASHES[run])
        if run == "KQ":
            shares = _complement(one, "by_frobenius")
            _curve(axes, one, run, shares, floor, _LABELS[run, "frobenius"], palette.DASHES["frobenius"], "s")
    found = f"all {saturated:,} runs are local by their own SVM" if saturated else "no run is saturated"
    if elsewhere:
        found = f'"all are local" refuted: {elsewhere:,} of {saturated:,} runs are not'
    axes.set_title(f"(b) {found}")
    axes.legend(loc="upper right")


_OWN = ("not_by_own", "saturated")


def _all_support(axes: Axes, summaries: Datasets, floor: float) -> None:
    for run, one in summaries.items():
        shares = _Shares(*(one[f"all_support{part}"].values for part in ("", "_low", "_high")))
        _curve(axes, one, run, shares, floor, page.RUNS[run], palette.DASHES[run])
    only = sum(int(one["only_local"].sum()) for one in summaries.values())
    said = f"{only:,} of these local only, refuted" if only else "none of these is local only"
    axes.set_title(f"(c) all tokens support vectors: {said}")
    axes.legend(loc="upper left")


def _complement(one: xarray.Dataset, name: str) -> _Shares:
    """Return the shares of the other runs."""
    return _Shares(*(1 - one[f"{name}{part}"].values for part in ("", "_high", "_low")))


def _curve(
    axes: Axes, one: xarray.Dataset, run: str, shares: _Shares, floor: float, label: str, dashes: str, marker: str = "o"
) -> None:
    """Draw shares with their intervals, those that are zero as open triangles at the floor."""
    x, colour = one["d"].values * _ASIDE[run], palette.COLOURS[run]
    mean, low, high = (np.maximum(part, floor) for part in shares)
    errors = np.clip([mean - low, high - mean], 0, None)
    fill = colour if dashes == palette.DASHES[run] else "white"
    look = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.5, "markerfacecolor": fill}
    none = shares.mean <= 0
    axes.errorbar(x, mean, errors, elinewidth=0.8, label=label, markevery=np.flatnonzero(~none).tolist(), **look)
    axes.plot(x[none], mean[none], "v", color=colour, markerfacecolor="white", markersize=5, zorder=4)


def _percent(share: float) -> str:
    """Return a share in percent, which is not broken into two lines."""
    return rf"${100 * share:.{2 if share < 0.0995 else 3}g}\,\%$"


def _remark(summaries: Datasets) -> str:
    seeds = np.unique(np.concatenate([one["seeds"].values for one in summaries.values()]))
    spread = f"{seeds[0]:,}" if len(seeds) == 1 else f"{seeds[0]:,} to {seeds[-1]:,}"
    return (
        f"Bars: 95 % intervals, {spread} runs a point. (a) includes runs that are not saturated, (b) does not. Support "
        "vectors: (b) of the SVM that the key names, in its title of the one that the training converges to; (c) of "
        "the Frobenius SVM."
    )
