"""The global-convergence figure: shares of seeds that select their optimal tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from jaxattn.experiments.landscape.global_convergence.claims import FAR, MARGINS, STARTS
from jaxattn.study.claims import Datasets, Judgements, family
from jaxattn.study.claims.counts import total
from jaxattn.study.style import labels, page, palette

_LOOKS = {
    "from W = 0": (palette.TEAL, "o", "steps of 0.1"),
    "from a long first step": (palette.WINE, "s", "first step of 100"),
}
_NAMES = dict(zip(STARTS, ("$W = 0$", "long first step", "random weights"), strict=True))
# What names a run from far starts.
_SIZES = {"n": "data.n", "d": "data.d", "R": "weights.margin"}
_REMARK = (
    "Seeds that select their optimal tokens, 95 % Wilson intervals. (a), (b): sphere data, from $W = 0$; "
    "(b): all dimensions together. (c): ringed: equal scores, and yet some seeds stay at other tokens, where the "
    r"inputs that are wrong no longer affect $W$. (d): from $R\,W_\alpha$, $\alpha$ a drawn wrong selection; the "
    "prediction, from which inputs are served, is for $R$ without bound."
)


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw the shares by the first step (correlation, worst margin), by the spread of scores, and from far starts."""
    first = {start: list(family(summaries, STARTS[start]).values()) for start in _LOOKS}
    random, far = (list(family(summaries, of).values()) for of in (STARTS["from random weights"], FAR))
    equal = [run for run in random if run.attrs["data.spread"] == 0]
    from_zero = [run for runs in first.values() for run in runs]
    gains = page.span((float(run["gain"]) for run in from_zero), ".2f")
    separated = f"{_sum(from_zero, 'separated_wrong')} of {_sum(from_zero, 'separated_seeds')} seeds"
    settled = f"{_sum(equal, 'settled')} of {_sum(equal, 'optimal_seeds')} seeds"
    left = f"{_sum(far, 'left')} of {_sum(far, 'starts')} starts"
    with page.style():
        figure = page.full(5.6)
        (a, b), (c, d) = figure.subplots(2, 2)
        _by_first_step(a, b, summaries, first)
        _by_spread(c, random)
        c.set(xlim=(-0.45, 1.08), ylim=(0.5, 1.06), xticks=(0, 0.25, 0.5, 1))
        _label_equal(c, equal)
        _from_far(d, far)
        verdicts = {name: judgements[f"global-convergence:{name}"].verdict for name in ("equal-scores", "basins")}
        figure.suptitle(
            f"With equal scores descent selects the optimal tokens from any start: {verdicts['equal-scores']}.\n"
            f"Where it ends from far along a wrong selection can be predicted: {verdicts['basins']}"
        )
        a.set_title(f"(a) the half with the larger cosines: share larger by {gains}")
        b.set_title(f"(b) first step separates (shaded): {separated} end at other tokens")
        c.set_title(f"(c) equal scores, from random weights: {settled} stay at other tokens")
        d.set_title(f"(d) equal scores, from far: {left} leave inputs unserved")
        d.set_xlabel("share of starts, optimal tokens")
        share = "share of seeds, optimal tokens"
        a.set(xlabel="cos of the first gradient and $W_{mm}$", ylabel=share, ylim=(-0.03, 1.08))
        b.set(xlabel="first step's worst margin ($W_{mm}$: 1)", ylabel=share, ylim=(-0.03, 1.08))
        c.set(xlabel="spread of other scores (equal 0, as drawn 1)", ylabel=share)
        b.legend(loc="lower right")
        d.legend(loc="lower left")
        counted = {name: summaries[start] for start, name in _NAMES.items()}
        counted[r"$R\,W_\alpha$"] = xarray.Dataset(attrs=total({run.attrs["run"]: run for run in far}))
        page.add_counts(figure, counted, _REMARK)
    return figure


def _by_first_step(left: Axes, right: Axes, summaries: Datasets, first: Mapping[str, list[xarray.Dataset]]) -> None:
    """Draw the shares by the first step's correlation, a curve for each dimension, and by its worst margin."""
    for k, (start, (colour, marker, label)) in enumerate(_LOOKS.items()):
        look = {"color": colour, "marker": marker}
        for run, dashes in zip(first[start], palette.STYLES, strict=False):
            # The first dimension has full marks, the others hollow ones.
            face = colour if run is first[start][0] else "white"
            x = run["correlation_bin"].values + 0.006 * (2 * k - 1)
            _points(left, x, *_shares(run, "by_correlation"), linestyle=dashes, markerfacecolor=face, **look)
        x = np.arange(len(MARGINS) - 1) + 0.08 * (2 * k - 1)
        _points(right, x, *_shares(summaries[start], "by_margin"), label=label, **look)
    words = [f"< {MARGINS[1]:g}"] + [f"{low:g}..{high:g}" for low, high in pairwise(MARGINS[1:])]
    right.set_xticks(range(len(words)), words, rotation=40, ha="right", fontsize=7)
    right.axvspan(4.5, 6.5, color=palette.AMBER, alpha=0.12, linewidth=0)
    dimensions = [f"$d = {run.attrs['data.d']}$" for run in first["from W = 0"]]
    colours = {label: colour for colour, _, label in _LOOKS.values()}
    page.key(left, colours, dict(zip(dimensions, palette.STYLES, strict=False)), loc="lower right")


def _sum(runs: Sequence[xarray.Dataset], name: str) -> int:
    return sum(int(run[name]) for run in runs)


def _shares(summary: xarray.Dataset, name: str) -> list[np.ndarray]:
    return [summary[part].values for part in (name, f"{name}_low", f"{name}_high")]


def _points(axes: Axes, x: ArrayLike, mean: np.ndarray, low: np.ndarray, high: np.ndarray, **look: Any) -> None:
    """Draw shares where there are seeds, with their intervals."""
    there = np.isfinite(mean)
    page.bars(axes, np.asarray(x)[there], mean[there], low[there], high[there], **look)


def _by_spread(axes: Axes, runs: Sequence[xarray.Dataset]) -> None:
    """Draw the shares along the spread of scores, a curve for each number of inputs."""
    sizes = sorted({run.attrs["data.n"] for run in runs})
    for n, colour, marker in zip(sizes, palette.ramp(len(sizes)), "Dos^", strict=False):
        curve = {run.attrs["data.spread"]: _shares(run, "optimal") for run in runs if run.attrs["data.n"] == n}
        spreads = sorted(curve)
        _points(axes, spreads, *np.transpose([curve[spread] for spread in spreads]), color=colour, marker=marker)


def _label_equal(axes: Axes, equal: Sequence[xarray.Dataset]) -> None:
    """Label the shares for equal scores, and ring those where seeds stay at other tokens."""
    ends = []
    for run in equal:
        share = float(run["optimal"])
        # Seeds that still move may yet arrive, and refute nothing.
        if int(run["settled"]):
            axes.plot(0, share, "o", color=palette.INK, markerfacecolor="none", markersize=10, zorder=5)
        ends.append(labels.End(f"$n = {run.attrs['data.n']}$: {share:.2f}  ", 0, share, palette.INK))
    labels.beside_ends(axes, ends, side="left")


def _from_far(axes: Axes, far: Sequence[xarray.Dataset]) -> None:
    """Draw a row a run: the share found, and the share predicted."""
    for row, run in enumerate(far):
        share, low, high = (float(part) for part in _shares(run, "optimal"))
        look = {"color": palette.TEAL, "fmt": "o", "markersize": 4, "elinewidth": 0.8}
        axes.errorbar(share, row, xerr=[[share - low], [high - share]], label=None if row else "found", **look)
        predicted = 1 - float(run["elsewhere"])
        axes.plot(predicted, row, "x", color=palette.WINE, label=None if row else "predicted")
    names = [", ".join(f"${name} = {run.attrs[key]:g}$" for name, key in _SIZES.items()) for run in far]
    axes.set_yticks(range(len(far)), names)
    axes.set(ylim=(len(far) - 0.4, -0.6))
