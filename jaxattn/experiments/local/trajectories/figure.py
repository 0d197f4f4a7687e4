"""The trajectory figures: paths of `W(k) z_i` in the plane against the rays of the SVM solutions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.trajectories.claims import OWN_NORM
from jaxattn.study.style import page

# One colour, token marker and line style an input, so that the inputs are told apart in grey too.
_INPUTS = ({"colour": "#0072B2", "marker": "o", "dashes": "-"}, {"colour": "#D55E00", "marker": "s", "dashes": "--"})


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw one panel a run: tokens, the selected ones as stars, paths, rays, separating lines.

    A path is scaled by its own largest length to the panel, since only its direction is compared;
    the line through the star's nearest rival perpendicular to the ray separates the star from the
    other tokens of its input.

    Args:
        summaries: of one seed of the runs "W" and "KQ", as `summarize` in this folder returns them.
    """
    with page.style():
        figure = page.new_figure(3.6 * len(summaries), 4.35)
        for axes, (run, summary) in zip(
            np.atleast_1d(figure.subplots(1, len(summaries))), summaries.items(), strict=True
        ):
            _panel(axes, run, summary)
        seed = int(next(iter(summaries.values()))["seed"])
        page.add_counts(
            figure,
            summaries,
            f"Drawn: seed {seed}, the first that both runs kept. Paths and rays are scaled to the panel.",
        )
    return figure


def _panel(axes: Axes, run: str, summary: xarray.Dataset) -> None:
    X = summary["X"].values
    reach = 1.25 * float(np.abs(X).max())
    norm = OWN_NORM[run]
    for i, look in enumerate(_INPUTS):
        star = int(summary["selected"].values[i])
        others = np.delete(X[i], star, axis=0)
        axes.scatter(*others.T, marker=look["marker"], s=26, facecolors="white", edgecolors=look["colour"], zorder=3)
        axes.scatter(*X[i, star], marker="*", s=130, color=look["colour"], edgecolors="black", linewidths=0.6, zorder=4)
        ray = summary["ray"].sel(norm=norm).values[i]
        direction = ray / np.linalg.norm(ray)
        axes.annotate(
            "",
            xy=0.98 * reach * direction,
            xytext=(0, 0),
            arrowprops={"arrowstyle": "-|>", "color": "#777777", "linewidth": 1.2, "linestyle": ":"},
            zorder=2,
        )
        path = summary["path"].values[:, i]
        path = np.concatenate([np.zeros((1, 2)), path]) * (0.85 * reach / np.linalg.norm(path, axis=1).max())
        axes.plot(*path.T, color=look["colour"], linestyle=look["dashes"], label=f"path of input {i + 1}", zorder=5)
        _separate(axes, X[i, star], others, direction, reach, look)
    final = summary["correlation"].isel(snapshot=-1)
    values = ", ".join(f"{name} {float(final.sel(norm=name)):.4f}" for name in final["norm"].values)
    axes.set_title(f"run of {page.RUNS[run]}, rays of the {page.NORMS[norm]}\ncorrelation: {values}", fontsize=8)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="first coordinate")
    axes.set_ylabel("second coordinate")
    axes.legend(loc="best")


def _separate(
    axes: Axes, star: np.ndarray, others: np.ndarray, direction: np.ndarray, reach: float, look: Mapping[str, str]
) -> None:
    """Draw the line halfway between the star and its nearest rival along the ray."""
    offset = (star @ direction + (others @ direction).max()) / 2
    along = np.array([-direction[1], direction[0]])
    ends = offset * direction + np.outer([-3 * reach, 3 * reach], along)
    axes.plot(*ends.T, color=look["colour"], linewidth=0.7, linestyle=look["dashes"], alpha=0.6, zorder=1)
