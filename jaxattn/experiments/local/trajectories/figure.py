"""The trajectory figures: paths of `W(k) z_i` in the plane against the rays of the SVM solutions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.trajectories.claims import OWN_NORM
from jaxattn.study.style import page
from jaxattn.study.style.plane import plane


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
    norm = OWN_NORM[run]
    paths = summary["path"].values.swapaxes(0, 1)
    plane(axes, summary["X"].values, summary["selected"].values, paths, summary["ray"].sel(norm=norm).values)
    final = summary["correlation"].isel(snapshot=-1)
    values = ", ".join(f"{name} {float(final.sel(norm=name)):.4f}" for name in final["norm"].values)
    axes.set_title(f"run of {page.RUNS[run]}, rays of the {page.NORMS[norm]}\ncorrelation: {values}", fontsize=8)
    axes.legend(loc="best")
