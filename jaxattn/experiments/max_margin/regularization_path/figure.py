"""The regularization-path figure: distance of both paths from each max-margin solution against the radius."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.max_margin.regularization_path.claims import DECADE, OWN
from jaxattn.study.style import labels, page, palette

_PATHS = {"W": "path of $W$", "KQ": "path of $(K, Q)$"}
_BALLS = {"W": r"radius $R$ of $\|W\|_F$", "KQ": r"radius $R$ of $\|KQ^\top\|_*$"}
_LIMITS = {"frobenius": "$W_F$", "nuclear": "$W_*$"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the distances of both paths, and the share of seeds whose two ends lead to two minima.

    Args:
        summaries: of the paths "W" and "KQ", as `summarize` returns them.
    """
    with page.style():
        figure = page.full(3.2)
        left, middle, right = figure.subplots(1, 3)
        lows, highs = zip(*(_range(one) for one in summaries.values()), strict=True)
        for letter, (axes, run) in zip("ab", ((left, "W"), (middle, "KQ")), strict=True):
            # The same limits for both paths, with room for the labels.
            axes.set(xscale="log", yscale="log", ylim=(0.3 * min(lows), 2.5 * max(highs)))
            _distances(axes, summaries[run], run, letter)
        left.set_ylabel("distance from a solution")
        middle.tick_params(labelleft=False)
        _minima(right, summaries)
        page.add_counts(figure, summaries, _remark(summaries))
    return figure


def _range(summary: xarray.Dataset) -> tuple[float, float]:
    return float(summary["distance_low"].min()), float(summary["distance_high"].max())


def _distances(axes: Axes, summary: xarray.Dataset, run: str, letter: str) -> None:
    radii, own = summary["radius"].values, summary.sel(norm=OWN[run])
    ends = []
    for norm in map(str, summary["norm"].values):
        one, colour = summary.sel(norm=norm), palette.COLOURS[norm]
        curve = (one[name].values for name in ("distance", "distance_low", "distance_high"))
        page.band(axes, radii, *curve, color=colour, linestyle=palette.DASHES[norm])
        ends.append(labels.End(f"from {_LIMITS[norm]}", radii[-1], float(one["distance"][-1]), colour))
    late = radii >= radii[-1] / DECADE * (1 - 1e-9)
    guide = 0.4 * own["distance"].values[-1] * radii[-1] / radii[late]
    axes.plot(radii[late], guide, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.annotate("$R^{-1}$", (radii[late][0], guide[0]), (-2, -2), textcoords="offset points", ha="right", va="top")
    nearest = str(summary["norm"].values[int(summary["distance"].isel(radius=-1).values.argmin())])
    falls = f"tends to {_LIMITS[OWN[run]]} like $R^{{{float(own['exponent_mean']):.2f}}}$"
    away = f"is nearest to {_LIMITS[nearest]}, which refutes the claim"
    axes.set(title=f"({letter}) {_PATHS[run]} {falls if nearest == OWN[run] else away}", xlabel=_BALLS[run])
    labels.beside_ends(axes, ends)


def _minima(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    ends = []
    for run, summary in summaries.items():
        curve = (summary[name].values for name in ("radius", "apart", "apart_low", "apart_high"))
        page.band(axes, *curve, color=palette.COLOURS[run], linestyle=palette.DASHES[run])
        radius, share = float(summary["radius"][-1]), float(summary["apart"][-1])
        ends.append(labels.End(page.RUNS[run], radius, share, palette.COLOURS[run]))
    shares = " and ".join(f"{one.y:.0%} ({one.label})" for one in ends)
    axes.set(title=f"(c) two minima: {shares} of seeds", xlabel="radius $R$", xscale="log")
    axes.set(ylim=(-0.02, 1.02), ylabel="share of seeds with two minima")
    labels.beside_ends(axes, ends)


def _remark(summaries: Mapping[str, xarray.Dataset]) -> str:
    every = list(summaries.values())
    unsolved, points = (sum(one.attrs[name] for one in every) for name in ("unsolved_points", "points"))
    worst = max(float(one["residual"].max()) for one in every)
    missing = f"{unsolved} of {points} points are unsolved. " if unsolved else ""
    return (
        r"$W_F$, $W_*$: Frobenius and nuclear SVM solution. Distance: $\|W_R/R - \hat W/\|\hat W\|\,\|_F$, $\|\hat W\|$"
        " in the norm of the ball; geometric means, 95% intervals. Two minima: the paths followed up and down differ; "
        f"(a), (b) show that of lower risk. {missing}"
        f"Largest residual: {page.power(worst) if np.isfinite(worst) else worst}."
    )
