"""The narrow-path figure: how the path of few columns nears its limit, its margin, and the margin of descent."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.narrow_path.claims import DECADE
from jaxattn.study.style import page, palette

# Margins below this, of descents that end at other tokens, are drawn as this.
_LEAST = -1.0


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw distance and margin of the paths over the radius, and the margin of every descent.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.5)
        left, middle, right = figure.subplots(1, 3)
        for (run, one), colour, dashes in zip(
            summaries.items(), palette.ramp(len(summaries)), cycle(palette.STYLES), strict=False
        ):
            look = {"color": colour, "linestyle": dashes}
            radii = one["radius"].values
            label = f"${run}$: $R^{{{float(one['exponent']):.2f}}}$"
            page.band(left, radii, *_curve(one, "distance"), **look, label=label)
            page.band(middle, radii, *_curve(one, "share"), **look, label=f"${run}$")
        _guide(left, summaries)
        left.set(title="(a) distance of the path from its limit", xlabel="radius $R$", xscale="log", yscale="log")
        left.set_ylabel(r"$\|KQ^\top\!/R - \hat W/\|\hat W\|_*\|_F$")
        left.legend(loc="lower left")
        middle.axhline(1, color="black", linewidth=0.7, linestyle=":")
        middle.set(title="(b) margin of the path", xlabel="radius $R$", xscale="log", ylim=(_LEAST, 1.1))
        middle.set_ylabel("margin / that of the best of rank $m$ found")
        middle.legend(loc="lower right")
        _descents(right, summaries)
        worst = max(float(one["residual"].max()) for one in summaries.values())
        above = ", ".join(f"{one.attrs['above']} at {run}" for run, one in summaries.items())
        missed = ", ".join(f"{one.attrs['missed']} at {run}" for run, one in summaries.items())
        page.add_counts(
            figure,
            summaries,
            f"Drawn are the kept seeds whose nuclear solution has a rank above m ({above}); means ((a) geometric) with "
            f"95 % intervals. Largest residual: {worst:.0e}. Unsolved are seeds whose path is beaten on the last ball "
            f"by the solver's solution ({missed}). No point is known to be a global minimum. (c): below "
            f"{_LEAST:g} drawn as that.",
        )
    return figure


def _curve(one: xarray.Dataset, name: str) -> list[np.ndarray]:
    return [one[f"{name}{end}"].values for end in ("", "_low", "_high")]


def _guide(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    one = next(iter(summaries.values()))
    radii, distance = one["radius"].values, one["distance"].values
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    guide = 2.5 * distance[-1] * radii[-1] / radii[late]
    axes.plot(radii[late], guide, color="black", linewidth=0.7, linestyle=":", label="$R^{-1}$")


def _descents(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw every descent's margin over that of the path, in increasing order, by the tokens that it ends at."""
    for place, (one, colour) in enumerate(zip(summaries.values(), palette.ramp(len(summaries)), strict=True)):
        margins, there = one["each_margin"].values, one["end"].values
        order = np.argsort(margins)
        x = place + np.linspace(-0.35, 0.35, len(order))
        for chosen, marker, fill in ((there, "o", colour), (~there, "x", colour)):
            drawn = chosen[order]
            axes.scatter(
                x[drawn], np.maximum(margins[order][drawn], _LEAST), s=14, marker=marker, color=fill, linewidths=0.8
            )
    for marker, label in (("o", "ends at the optimal tokens"), ("x", "at others")):
        axes.scatter([], [], s=14, marker=marker, color=palette.NOTE, label=label)
    axes.axhline(1, color="black", linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(summaries)), [f"${run}$" for run in summaries])
    axes.set(title="(c) descent, seed by seed", ylabel="margin of descent / that of the path", ylim=(_LEAST - 0.1, 1.5))
    axes.legend(loc="upper left")
