"""The narrow-path figure: how the path of few columns nears its limit, its margin, and the margin of descent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.narrow_path.claims import CLAIMS, DECADE
from jaxattn.study.claims import refuted
from jaxattn.study.style import page, palette

# Margins below this are drawn as this: descent ends at other tokens, or the radius is small.
_LEAST = -1.0
# Where descent ends: marker, its words, and the height that they stand above.
_ENDS = {True: ("o", "the\noptimal tokens", 1.0), False: ("x", "other\ntokens", _LEAST)}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw distance and margin of the paths over the radius, and the margin of every descent.

    Args:
        summaries: of `claims.summarize`.
    """
    colours = dict(zip(summaries, palette.ramp(len(summaries)), strict=True))
    with page.style():
        figure = page.full(3.3)
        left, middle, right = figure.subplots(1, 3)
        for (run, one), dashes in zip(summaries.items(), cycle(palette.STYLES), strict=False):
            look, radii = {"color": colours[run], "linestyle": dashes}, one["radius"].values
            label = f"$m = {one.attrs['width']}$"
            page.band(left, radii, *_curve(one, "distance"), **look, label=label)
            page.band(middle, radii, *_curve(one, "share"), **look)
        _guide(left, summaries)
        powers = " and ".join(f"$R^{{{float(one['exponent']):.2f}}}$" for one in summaries.values())
        left.set(title=f"(a) the path nears its limit like {powers}", xlabel="radius $R$", xscale="log", yscale="log")
        left.set_ylabel("distance of the path from its limit")
        left.legend(loc="lower left")
        middle.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
        middle.set(title=f"(b) {_margin(summaries)}", xlabel="radius $R$", xscale="log", ylim=(_LEAST, 1.1))
        middle.set_ylabel("margin / that of the best")
        _descents(right, summaries, colours)
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _curve(one: xarray.Dataset, name: str) -> list[np.ndarray]:
    return [one[f"{name}{end}"].values for end in ("", "_low", "_high")]


def _guide(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    one = next(iter(summaries.values()))
    radii, distance = one["radius"].values, one["distance"].values
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    guide = 2.5 * distance[-1] * radii[-1] / radii[late]
    axes.plot(radii[late], guide, color=palette.INK, linewidth=0.7, linestyle=":", label="$R^{-1}$")


def _margin(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say which share of the margin of the best solution found the paths have on the last ball."""
    least = min(float(one["share"][-1]) for one in summaries.values())
    # Nothing is rounded up to the whole margin.
    share = np.floor(1000 * least) / 10
    return f"its margin reaches {share:.1f}% of the best found"


def _descents(axes: Axes, summaries: Mapping[str, xarray.Dataset], colours: Mapping[str, str]) -> None:
    """Draw every descent's margin over that of the path, in increasing order, by the tokens that it ends at."""
    for place, (run, one) in enumerate(summaries.items()):
        margins, there = one["each_margin"].values, one["end"].values
        order = np.argsort(margins)
        x, heights = place + np.linspace(-0.35, 0.35, len(order)), np.maximum(margins[order], _LEAST)
        for is_there, (marker, label, beside) in _ENDS.items():
            drawn = there[order] == is_there
            axes.scatter(x[drawn], heights[drawn], s=12, marker=marker, color=colours[run], linewidths=0.8)
            if drawn.any():
                look = {"ha": "center", "va": "bottom", "fontsize": page.SMALLEST, "color": colours[run]}
                axes.annotate(f"{drawn.sum()} at {label}", (place, beside), (0, 6), textcoords="offset points", **look)
    axes.axhline(1, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(summaries)), [f"$m = {one.attrs['width']}$" for one in summaries.values()])
    axes.set_yticks([_LEAST, -0.5, 0, 0.5, 1], [rf"$\leq{_LEAST:g}$", "$-0.5$", "0.0", "0.5", "1.0"])
    axes.set(xlim=(-0.5, len(summaries) - 0.5), ylim=(_LEAST - 0.1, 1.5), title=f"(c) {_ended(summaries)}")
    axes.set_ylabel("margin / that of the path")


def _ended(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say how many descents end at other tokens, and whether the claim that they follow the path is refuted."""
    says = "claim refuted: " if "narrow-path:descent" in refuted(CLAIMS, summaries) else ""
    every, there = (sum(one.attrs[name] for one in summaries.values()) for name in ("above", "there"))
    return f"{says}{every - there} of {every} descents end elsewhere"


def _remark(summaries: Mapping[str, xarray.Dataset]) -> str:
    drawn = ", ".join(str(one.attrs["above"]) for one in summaries.values())
    worst = max(float(one["residual"].max()) for one in summaries.values())
    missed = sum(one.attrs["missed"] for one in summaries.values())
    beaten = f"In {missed} unsolved seeds the solver finds a lower risk. " if missed else ""
    return (
        f"Drawn: kept seeds of nuclear rank above $m$ ({drawn}); means, in (a) geometric, with 95 % intervals. {beaten}"
        f"No minimum is known to be global; largest residual {page.power(worst)}."
    )
