"""The global-convergence figure: shares of seeds that select their optimal tokens."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.global_convergence.estimates import FAR, STARTS
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_LOOKS = {
    "from W = 0": (palette.TEAL, "o", "steps of 0.1"),
    "from a long first step": (palette.WINE, "s", "first step of 100"),
}
_NAMES = dict(zip(STARTS, ("$W = 0$", "long first step", "random weights"), strict=True))
_MARKERS = ("D", "o", "s", "^")
_REMARK = (
    "Seeds that select their optimal tokens, 95 % Wilson intervals. (a), (b): sphere data, from $W = 0$; "
    "(b): all dimensions together. (c): from random weights; ringed: equal scores, and yet some seeds stay at "
    "other tokens, where the inputs that are wrong no longer affect $W$. (d): equal scores, "
    r"$\alpha$ a drawn wrong selection; crosses: predicted for $R$ without bound from which inputs are served."
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the shares by the first step (correlation, worst margin), by the spread of scores, and from far starts."""
    with page.style():
        figure = page.full(5.6)
        (left, right), (spread, far) = figure.subplots(2, 2, sharey=True)
        first = {start: _of(summaries, STARTS[start]) for start in _LOOKS}
        for k, (start, (colour, marker, label)) in enumerate(_LOOKS.items()):
            look = {"color": colour, "marker": marker}
            _by_correlation(left, first[start], look, 0.006 * (2 * k - 1))
            _by_margin(right, summaries[start], label, look, 0.08 * (2 * k - 1))
        right.axvspan(4.5, 6.5, color=palette.AMBER, alpha=0.12, linewidth=0)
        dimensions = [f"$d = {run.attrs['data.d']}$" for run in first["from W = 0"]]
        colours = {label: colour for colour, _, label in _LOOKS.values()}
        page.key(left, colours, dict(zip(dimensions, palette.STYLES, strict=False)), loc="lower right")
        _by_spread(spread, _of(summaries, STARTS["from random weights"]))
        starts = _of(summaries, FAR)
        _from_far(far, starts)
        from_zero = [run for runs in first.values() for run in runs]
        rise = "rises" if all(float(run["gain"]) > 0 for run in from_zero) else "does not always rise"
        left.set(title=f"(a) the share {rise} with the first gradient's cosine")
        left.set_xlabel("cos of the first gradient and $W_{mm}$")
        seeds, wrong = (sum(int(run[name]) for run in from_zero) for name in ("separated_seeds", "separated_wrong"))
        right.set_title(f"(b) first step separates (shaded): {wrong} of {seeds} seeds end at other tokens")
        right.set_xlabel("first step's worst margin ($W_{mm}$: 1)")
        spread.set_xlabel("spread of other scores (equal 0, as drawn 1)")
        far.set(xlabel="$R$, least margin of the start $R\\,W_\\alpha$", xscale="log")
        for axes in (left, spread):
            axes.set_ylabel("share of seeds, optimal tokens")
        for axes in (left, right, spread, far):
            axes.set_ylim(-0.03, 1.08)
            if axes is not left:
                axes.legend(loc="lower right" if axes is right else "lower left")
        counted = {run.attrs["run"]: run for run in starts}
        counted |= {name: summaries[start] for start, name in _NAMES.items()}
        page.add_counts(figure, counted, _REMARK)
    return figure


def _of(summaries: Datasets, settings: dict[str, str]) -> list[xarray.Dataset]:
    return [run for run in summaries.values() if settings.items() <= run.attrs.items()]


def _points(axes: Axes, x: np.ndarray, run: xarray.Dataset, name: str, **look: Any) -> None:
    """Draw shares where there are seeds, with their intervals."""
    there = run[f"{name}_seeds"].values > 0
    mean, low, high = (run[part].values[there] for part in (name, f"{name}_low", f"{name}_high"))
    axes.errorbar(x[there], mean, np.clip([mean - low, high - mean], 0, None), markersize=4, elinewidth=0.8, **look)


def _by_correlation(axes: Axes, runs: list[xarray.Dataset], look: dict[str, Any], aside: float) -> None:
    """Draw a curve for each dimension: the first with full marks and solid, the others hollow and dashed."""
    for k, (run, dashes) in enumerate(zip(runs, palette.STYLES, strict=False)):
        face = {"markerfacecolor": "white"} if k else {}
        _points(axes, run["correlation_bin"].values + aside, run, "by_correlation", linestyle=dashes, **face, **look)


def _by_margin(axes: Axes, summary: xarray.Dataset, label: str, look: dict[str, Any], aside: float) -> None:
    edges = summary["margin_edge"].values
    _points(axes, np.arange(len(edges) - 1) + aside, summary, "by_margin", label=label, **look)
    words = [f"< {edges[1]:g}"] + [f"{low:g}..{high:g}" for low, high in pairwise(edges[1:])]
    axes.set_xticks(range(len(words)), words, rotation=40, ha="right", fontsize=7)


def _from_far(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Draw the shares from far along wrong selections against R, and beside the last of each size the predicted one."""
    sizes = sorted({(run.attrs["data.n"], run.attrs["data.d"]) for run in runs})
    for (n, d), colour, marker in zip(sizes, palette.ramp(len(sizes)), _MARKERS, strict=False):
        own = [run for run in runs if (run.attrs["data.n"], run.attrs["data.d"]) == (n, d)]
        own = sorted(own, key=lambda run: run.attrs["weights.margin"])
        R = np.array([run.attrs["weights.margin"] for run in own])
        mean, low, high = (np.array([float(run[f"optimal{part}"]) for run in own]) for part in ("", "_low", "_high"))
        errors = np.clip([mean - low, high - mean], 0, None)
        look = {"color": colour, "marker": marker, "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(R, mean, errors, **look, label=f"$n = {n}$, $d = {d}$")
        axes.plot(1.6 * R[-1], 1 - float(own[-1]["elsewhere"]), "x", color=colour)
    left, starts = (sum(int(run[name]) for run in runs) for name in ("left", "starts"))
    refutes = f"refuted by {left} of {starts} starts" if left else f"not refuted by {starts} starts"
    axes.set_title(f"(d) equal scores, from far along a wrong selection: {refutes}")


def _by_spread(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Draw the shares against the spread, and ring those at equal scores that refute global convergence."""
    numbers = sorted({run.attrs["data.n"] for run in runs})
    for n, colour, marker in zip(numbers, palette.ramp(len(numbers)), _MARKERS, strict=False):
        own = sorted((run for run in runs if run.attrs["data.n"] == n), key=lambda run: run.attrs["data.spread"])
        parts = ("optimal", "optimal_low", "optimal_high", "optimal_seeds")
        curve = xarray.Dataset({name: ("run", [float(run[name]) for run in own]) for name in parts})
        spreads = np.array([run.attrs["data.spread"] for run in own])
        _points(axes, spreads, curve, "optimal", color=colour, marker=marker, label=f"$n = {n}$")
        for run in own:
            # Seeds that still move may yet arrive, and refute nothing.
            if run.attrs["data.spread"] == 0 and int(run["settled"]):
                share = float(run["optimal"])
                axes.plot(0, share, "o", color=palette.INK, markerfacecolor="none", markersize=10, zorder=5)
                text = f"refutes: $n = {n}$, {share:.2f}"
                axes.annotate(text, (0, share), (8, -16), textcoords="offset points", va="top", zorder=5)
    equal = [run for run in runs if run.attrs["data.spread"] == 0]
    settled, seeds = (sum(int(run[name]) for run in equal) for name in ("settled", "optimal_seeds"))
    refutes = f"refuted by {settled} of {seeds} seeds" if settled else f"not refuted by {seeds} seeds"
    axes.set_title(f"(c) equal scores suffice, from random weights: {refutes}")
