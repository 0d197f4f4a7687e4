"""The narrow-path figure: how the path of few columns nears its limit, its margin, and the margin of descent."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.narrow_path.claims import is_late
from jaxattn.study.claims import Datasets, Judgements, Verdict
from jaxattn.study.style import page, palette

# Margins below this are drawn as this: descent ends at other tokens, or the radius is small.
_LEAST = -1.0
# Where descent ends: marker, its words, and the height that they stand above.
_ENDS = {True: ("o", "the\noptimal tokens", 1.0), False: ("x", "other\ntokens", _LEAST)}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw distance and margin of the paths over the radius, and the margin of every descent."""
    colours = dict(zip(summaries, palette.ramp(len(summaries)), strict=True))
    with page.style():
        figure = page.full(3.3)
        left, middle, right = figure.subplots(1, 3)
        for (name, run), dashes in zip(summaries.items(), cycle(palette.STYLES), strict=False):
            look, radii = {"color": colours[name], "linestyle": dashes}, run["radius"].values
            label = f"$m = {run.attrs['weights.m']}$"
            page.band(left, radii, *_curve(run, "distance"), **look, label=label)
            page.band(middle, radii, *_curve(run, "share"), **look)
        _guide(left, next(iter(summaries.values())))
        powers = " and ".join(f"$R^{{{float(run['exponent']):.2f}}}$" for run in summaries.values())
        left.set(title=f"(a) the path nears its limit like {powers}", xlabel="radius $R$", xscale="log", yscale="log")
        left.set_ylabel("distance of the path from its limit")
        left.legend(loc="lower left")
        middle.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
        middle.set(title=f"(b) {_margin(summaries)}", xlabel="radius $R$", xscale="log", ylim=(_LEAST, 1.1))
        middle.set_ylabel("margin / that of the best")
        _descents(right, summaries, colours)
        every, there = (sum(run.attrs[name] for run in summaries.values()) for name in ("above", "there"))
        is_refuted = judgements["narrow-path:descent"].verdict in (Verdict.FAILS, Verdict.CORRECTED)
        says = "claim refuted: " if is_refuted else ""
        right.set_title(f"(c) {says}{every - there} of {every} descents end elsewhere")
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _curve(run: xarray.Dataset, name: str) -> list[np.ndarray]:
    return [run[f"{name}{end}"].values for end in ("", "_low", "_high")]


def _guide(axes: Axes, run: xarray.Dataset) -> None:
    radii, late = run["radius"].values, is_late(run)
    guide = 2.5 * run["distance"].values[-1] * radii[-1] / radii[late]
    axes.plot(radii[late], guide, color=palette.INK, linewidth=0.7, linestyle=":", label="$R^{-1}$")


def _margin(summaries: Datasets) -> str:
    """Say which share of the margin of the best solution found the paths have on the last ball."""
    least = min(float(run["share"][-1]) for run in summaries.values())
    # Nothing is rounded up to the whole margin.
    share = np.floor(1000 * least) / 10
    return f"its margin reaches {share:.1f}% of the best found"


def _descents(axes: Axes, summaries: Datasets, colours: dict[str, str]) -> None:
    """Draw every descent's margin over that of the path, in increasing order, by the tokens that it ends at."""
    for x, (name, run) in enumerate(summaries.items()):
        margins, there = run["each_margin"].values, run["end"].values
        order = np.argsort(margins)
        spread, heights = x + np.linspace(-0.35, 0.35, len(order)), np.maximum(margins[order], _LEAST)
        for is_there, (marker, label, height) in _ENDS.items():
            drawn = there[order] == is_there
            axes.scatter(spread[drawn], heights[drawn], s=12, marker=marker, color=colours[name], linewidths=0.8)
            if drawn.any():
                look = {"ha": "center", "va": "bottom", "fontsize": page.SMALLEST, "color": colours[name]}
                axes.annotate(f"{drawn.sum()} at {label}", (x, height), (0, 6), textcoords="offset points", **look)
    axes.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(summaries)), [f"$m = {run.attrs['weights.m']}$" for run in summaries.values()])
    axes.set_yticks([_LEAST, -0.5, 0, 0.5, 1], [rf"$\leq{_LEAST:g}$", "$-0.5$", "0.0", "0.5", "1.0"])
    axes.set(xlim=(-0.5, len(summaries) - 0.5), ylim=(_LEAST - 0.1, 1.5))
    axes.set_ylabel("margin / that of the path")


def _remark(summaries: Datasets) -> str:
    drawn = ", ".join(str(run.attrs["above"]) for run in summaries.values())
    worst = max(float(run["residual"].max()) for run in summaries.values())
    missed = sum(run.attrs["missed"] for run in summaries.values())
    beaten = f"In {missed} unsolved seeds the solver finds a lower risk. " if missed else ""
    return (
        f"Drawn: kept seeds of nuclear rank above $m$ ({drawn}); means, in (a) geometric, with 95 % intervals. {beaten}"
        f"No minimum is known to be global; largest residual {page.power(worst)}."
    )
