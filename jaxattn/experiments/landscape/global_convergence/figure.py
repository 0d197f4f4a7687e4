"""The global-convergence figure: shares of seeds that select their optimal tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.study.style import page, palette

_LOOKS = {"zero": (palette.TEAL, "o", "steps of 0.1"), "long": (palette.WINE, "s", "first step of 100")}
_MARKERS = ("D", "o", "s", "^")


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the shares by the first step's correlation and worst margin, by the spread of scores, and from far starts.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(5.6)
        (left, right), (spread, far) = figure.subplots(2, 2, sharey=True)
        first = {start: summaries[start] for start in _LOOKS if start in summaries}
        for k, (start, summary) in enumerate(first.items()):
            colour, marker, label = _LOOKS[start]
            look = {"color": colour, "marker": marker}
            _by_correlation(left, summary, look, 0.006 * (2 * k - 1))
            _by_margin(right, summary, label, look, 0.08 * (2 * k - 1))
        right.axvspan(4.5, 6.5, color=palette.AMBER, alpha=0.12, linewidth=0)
        if first:
            dimensions = [f"$d = {int(d)}$" for d in next(iter(first.values()))["d"].values]
            colours = {_LOOKS[start][2]: _LOOKS[start][0] for start in first}
            page.key(left, colours, dict(zip(dimensions, palette.STYLES, strict=False)), loc="lower right")
        if "random" in summaries:
            _by_spread(spread, summaries["random"])
        _from_far(far, [one for one in summaries.values() if one.attrs.get("start") == "far"])
        gains = [float(gain) for one in first.values() for gain in one["gain_mean"].values]
        rise = "rises" if all(gain > 0 for gain in gains) else "does not always rise"
        left.set(title=f"(a) the share {rise} with the first gradient's cosine")
        left.set_xlabel("cos of the first gradient and $W_{mm}$")
        seeds, wrong = (sum(int(one[name].sum()) for one in first.values()) for name in _SEPARATED)
        right.set_title(f"(b) first step separates (shaded): {wrong} of {seeds} seeds end at other tokens")
        right.set_xlabel("first step's worst margin ($W_{mm}$: 1)")
        spread.set_xlabel("spread of other scores (equal 0, as drawn 1)")
        far.set(xlabel="$R$, least margin of the start $R\\,W_\\alpha$", xscale="log")
        for axes in (left, spread):
            axes.set_ylabel("share of seeds, optimal tokens")
        for axes in (left, right, spread, far):
            axes.set_ylim(-0.03, 1.08)
            if axes is not left and axes.get_legend_handles_labels()[1]:
                axes.legend(loc="lower right" if axes is right else "lower left")
        named = {_NAMES.get(start, start): one for start, one in summaries.items()}
        page.add_counts(
            figure,
            named,
            "Seeds that select their optimal tokens, 95 % Wilson intervals. (a), (b): sphere data, from $W = 0$; "
            "(b): all dimensions together. (c): from random weights; ringed: equal scores, and yet some seeds stay at "
            "other tokens, where the inputs that are wrong no longer affect $W$. (d): equal scores, "
            r"$\alpha$ a drawn wrong selection; crosses: predicted for $R$ without bound from which inputs are served.",
        )
    return figure


_SEPARATED = ("separated_seeds", "separated_wrong")
_NAMES = {"zero": "$W = 0$", "long": "long first step", "random": "random weights"}


def _points(axes: Axes, x: np.ndarray, one: xarray.Dataset, name: str, **look: Any) -> None:
    """Draw shares where there are seeds, with their intervals."""
    there = one[f"{name}_seeds"].values > 0
    mean, low, high = (one[part].values[there] for part in (name, f"{name}_low", f"{name}_high"))
    axes.errorbar(x[there], mean, np.clip([mean - low, high - mean], 0, None), markersize=4, elinewidth=0.8, **look)


def _by_correlation(axes: Axes, summary: xarray.Dataset, look: dict[str, Any], aside: float) -> None:
    """Draw a curve for each dimension: the first with full marks and solid, the others hollow and dashed."""
    for k, (run, dashes) in enumerate(zip(summary["run"].values, palette.STYLES, strict=False)):
        one = summary.sel(run=run)
        face = {"markerfacecolor": "white"} if k else {}
        _points(axes, one["correlation_bin"].values + aside, one, "by_correlation", linestyle=dashes, **face, **look)


def _by_margin(axes: Axes, summary: xarray.Dataset, label: str, look: dict[str, Any], aside: float) -> None:
    edges = summary["margin_edge"].values
    _points(axes, np.arange(len(edges) - 1) + aside, summary, "by_margin", label=label, **look)
    words = [f"< {edges[1]:g}"] + [f"{low:g}..{high:g}" for low, high in pairwise(edges[1:])]
    axes.set_xticks(range(len(words)), words, rotation=40, ha="right", fontsize=7)


def _from_far(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the shares from far along wrong selections against R, and beside the last of each size the predicted one."""
    sizes = sorted({(int(one.attrs["n"]), int(one.attrs["d"])) for one in runs})
    for k, ((n, d), colour) in enumerate(zip(sizes, palette.ramp(len(sizes)), strict=True)):
        own = sorted(
            (one for one in runs if (one.attrs["n"], one.attrs["d"]) == (n, d)), key=lambda one: one.attrs["R"]
        )
        R = np.array([one.attrs["R"] for one in own])
        mean, low, high = (np.array([float(one[f"optimal{part}"]) for one in own]) for part in ("", "_low", "_high"))
        errors = np.clip([mean - low, high - mean], 0, None)
        look = {"color": colour, "marker": _MARKERS[k % len(_MARKERS)], "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(R, mean, errors, **look, label=f"$n = {n}$, $d = {d}$")
        axes.plot(1.6 * R[-1], 1 - float(own[-1]["elsewhere"]), "x", color=colour)
    left, starts = (sum(int(one[name]) for one in runs) for name in ("left", "starts"))
    refutes = f"refuted by {left} of {starts} starts" if left else f"not refuted by {starts} starts"
    axes.set_title(f"(d) equal scores, from far along a wrong selection: {refutes if runs else 'no run'}")


def _by_spread(axes: Axes, summary: xarray.Dataset) -> None:
    """Draw the shares against the spread, and ring those at equal scores that refute global convergence."""
    numbers, refuting = np.unique(summary["n"].values), 0
    for n, colour, shape in zip(numbers, palette.ramp(len(numbers)), _MARKERS, strict=False):
        one = summary.isel(run=(summary["n"] == n).values).sortby("spread")
        _points(axes, one["spread"].values, one, "optimal", color=colour, marker=shape, label=f"$n = {n}$")
        # Seeds that still move may yet arrive, and refute nothing.
        counter = one.isel(run=((one["spread"] == 0) & (one["settled"] > 0)).values)
        for share, settled in zip(counter["optimal"].values, counter["settled"].values, strict=True):
            axes.plot(0, share, "o", color=palette.INK, markerfacecolor="none", markersize=10, zorder=5)
            text = f"refutes: $n = {n}$, {share:.2f}"
            axes.annotate(text, (0, share), (8, -16), textcoords="offset points", va="top", zorder=5)
            refuting += int(settled)
    seeds = int(summary["optimal_seeds"].values[summary["spread"].values == 0].sum())
    found = f"refuted by {refuting} of {seeds} seeds" if refuting else f"not refuted by {seeds} seeds"
    axes.set_title(f"(c) equal scores suffice, from random weights: {found}")
