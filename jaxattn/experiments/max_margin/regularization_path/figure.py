"""The regularization-path figure: distance of both paths from each max-margin solution against the radius."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.regularization_path.claims import DECADE, OWN
from jaxattn.study.style import page, palette

_TITLES = {"W": r"(a) path of $W$, $\|W\|_F \leq R$", "KQ": r"(b) path of $(K, Q)$, $\|KQ^\top\|_* \leq R$"}
_UNITS = {"W": r"$\|W_R/R - \hat W/\|\hat W\|_F\,\|_F$", "KQ": r"$\|KQ^\top\!/R - \hat W/\|\hat W\|_*\|_F$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the distances of both paths, and the share of seeds whose two ends lead to two minima.

    Args:
        summaries: of the paths "W" and "KQ", as `summarize` returns them.
    """
    with page.style():
        figure = page.full(3.5)
        left, middle, right = figure.subplots(1, 3)
        for axes, run in ((left, "W"), (middle, "KQ")):
            _distances(axes, summaries[run], run)
        for run, summary in summaries.items():
            curve = (summary[name].values for name in ("radius", "apart", "apart_low", "apart_high"))
            look = {"color": palette.COLOURS[run], "linestyle": palette.DASHES[run], "label": page.RUNS[run]}
            page.band(right, *curve, **look)
        right.set(title="(c) non-convexity", xlabel="radius $R$", xscale="log", ylim=(-0.02, 1.02))
        right.set_ylabel("share of seeds with two minima")
        right.legend(loc="upper left")
        points, unsolved = (
            sum(one.attrs[name] for one in summaries.values()) for name in ("points", "unsolved_points")
        )
        worst = max(float(one["residual"].max()) for one in summaries.values())
        page.add_counts(
            figure,
            summaries,
            "Geometric means over kept seeds, bands: 95 % bootstrap intervals; shares with Wilson's intervals. "
            f"{unsolved} of {points} points are unsolved; largest residual of a kept seed: {worst:.0e}. (c): seeds "
            "whose paths followed up and down are at different points; (a) and (b) show that of lower risk.",
        )
    return figure


def _distances(axes: Axes, summary: xarray.Dataset, run: str) -> None:
    radii = summary["radius"].values
    for norm in summary["norm"].values:
        one = summary.sel(norm=norm)
        label = page.NORMS[str(norm)]
        if norm == OWN[run]:
            label += f": $R^{{{float(one['exponent_mean']):.2f}}}$"
        curve = (one[name].values for name in ("distance", "distance_low", "distance_high"))
        page.band(
            axes, radii, *curve, color=palette.COLOURS[str(norm)], linestyle=palette.DASHES[str(norm)], label=label
        )
    own = summary.sel(norm=OWN[run])["distance"].values
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    guide = 2.0 * own[-1] * radii[-1] / radii[late]
    axes.plot(radii[late], guide, color="black", linewidth=0.7, linestyle=":", label="$R^{-1}$")
    axes.set(title=_TITLES[run], xlabel="radius $R$", ylabel=_UNITS[run], xscale="log", yscale="log")
    axes.legend(loc="lower left")
