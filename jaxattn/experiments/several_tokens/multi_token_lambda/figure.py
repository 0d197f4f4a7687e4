"""The multi-token figure over lambda: how many tokens are selected, and the direction error of each description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.several_tokens.evidence import RANKED
from jaxattn.experiments.several_tokens.looks import FITTED, LOOKS
from jaxattn.study.claims import total
from jaxattn.study.style import labels, page, palette

_SELECTED, _MIXED = "selected\nby descent", "mixed by the\nbest attention"
# Lambda doubles from place to place, from 1 on; lambda = 0 stands at 0, beyond a break of the axis.
_ZERO = 0.0


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw both panels against lambda, means with 95 % intervals.

    Args:
        summaries: of `claims.summarize`, lambda increasing.
    """
    runs = list(summaries.values())
    penalties = [float(one.attrs["penalty"]) for one in runs]
    places = dict(zip(penalties, _places(penalties), strict=True))
    with page.style():
        figure = page.full(3.2)
        left, right = figure.subplots(1, 2)
        left.set(title=f"(a) {_counted(runs)}", ylabel="mean number of tokens of an input", ylim=(0, _most(runs)))
        right.set(title=f"(b) {_described(runs)}", ylabel="direction error at the end, 1 - cos", yscale="log")
        for axes in (left, right):
            # Room for the labels.
            axes.set(xlabel=r"$\lambda$", xlim=(-0.4, 1.45 * max(2.0, *places.values())))
            axes.set_xticks(list(places.values()), [f"{penalty:g}" for penalty in penalties])
            if 0.0 in places and len(places) > 1:
                _break(axes)
        ends = [_curve(left, runs, places, "tokens", label=_SELECTED, color=palette.TEAL, marker="o")]
        ends += [_curve(left, runs, places, "best", label=_MIXED, color=palette.WINE, marker="s", linestyle="--")]
        labels.beside_ends(left, [one for one in ends if one], gap=0.13)
        ends = []
        for solution in RANKED:
            label, colour, dashes, marker = LOOKS[solution]
            own = [one.sel(solution=solution) for one in runs]
            look = {"color": colour, "linestyle": dashes, "marker": marker}
            ends.append(_curve(right, own, places, "off", label=label, **look))
        labels.beside_ends(right, [one for one in ends if one])
        least = min(int(one.attrs["kept"]) for one in runs)
        page.add_counts(
            figure,
            {f"{len(runs)} values of $\\lambda$": xarray.Dataset(attrs=total(summaries))},
            f"Means with 95 % intervals, (a) over all runs that did not diverge, (b) over {least} or more kept runs. "
            f"{FITTED}",
            "runs",
        )
    return figure


def _places(penalties: Sequence[float]) -> list[float]:
    least = min((penalty for penalty in penalties if penalty > 0), default=1.0)
    return [1 + float(np.log2(penalty / least)) if penalty > 0 else _ZERO for penalty in penalties]


def _curve(
    axes: Axes, runs: Sequence[xarray.Dataset], places: Mapping[float, float], name: str, label: str, **look: Any
) -> labels.End | None:
    """Draw the means of the runs that have one, joined where lambda > 0, and return where the label stands."""
    there = [one for one in runs if name in one]
    if not there:
        return None
    x = np.array([places[float(one.attrs["penalty"])] for one in there])
    mean, low, high = (np.array([float(one[name + part]) for one in there]) for part in ("", "_low", "_high"))
    line = {"markersize": 4, "elinewidth": 0.8, **look}
    for here, joined in ((x == _ZERO, {"linestyle": "none"}), (x != _ZERO, {})):
        if here.any():
            errors = np.clip([mean[here] - low[here], high[here] - mean[here]], 0, None)
            axes.errorbar(x[here], mean[here], errors, **{**line, **joined})
    return labels.End(label, float(x[-1]), float(mean[-1]), look["color"])


def _break(axes: Axes) -> None:
    """Mark the break of the axis between lambda = 0 and the next."""
    slash = {"marker": [(-0.5, -1), (0.5, 1)], "markersize": 6, "color": palette.INK, "linestyle": "none"}
    axes.plot([0.45, 0.55], [0, 0], transform=axes.get_xaxis_transform(), clip_on=False, markeredgewidth=0.8, **slash)


def _most(runs: Sequence[xarray.Dataset]) -> float:
    every = [float(one[name]) for one in runs for name in ("tokens_high", "best_high") if name in one]
    return 1.1 * max(every, default=1.0)


def _counted(runs: Sequence[xarray.Dataset]) -> str:
    """Say how the number of tokens changes with lambda, and how far it is from that of the best attention."""
    there = [one for one in runs if "tokens" in one]
    if not there:
        return "every run diverged"
    tokens, best = (np.array([float(one[name]) for one in there]) for name in ("tokens", "best"))
    off = float(np.abs(tokens / best - 1).max())
    rises = len(there) > 1 and bool((np.diff(tokens) > 0).all())
    said = "more tokens for every larger $\\lambda$" if rises else "not more tokens for every larger $\\lambda$"
    near = f"within {off:.0%} of" if off < 1 else "far from"
    return f"{said}, {near} what the best attention mixes"


def _described(runs: Sequence[xarray.Dataset]) -> str:
    """Say how far both descriptions are from W for the largest lambda."""
    there = [one for one in runs if "off" in one]
    if not there:
        return "no run is kept"
    last = there[-1]
    fitted, single = (page.power(float(last["off"].sel(solution=name))) for name in ("W_SVMeq", "W_mm"))
    label, alone = LOOKS["W_SVMeq"][0], LOOKS["W_mm"][0]
    return f"for $\\lambda = {last.attrs['penalty']:g}$ {label} is off by {fitted}, {alone} alone by {single}"
