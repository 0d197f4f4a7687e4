"""The local-convergence figure: saturation (a), direction errors of training W (b) and of training (K, Q) (c)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.local.local_convergence.claims import PUBLISHED, PUBLISHED_PROBABILITY, STEPS
from jaxattn.study.style import page, palette
from jaxattn.study.style.curves import draw_panels


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the three panels, each curve a mean over seeds with its 95 % interval, and the published means.

    Args:
        summaries: of the runs "W" and "KQ", as `summarize` in this folder returns them.
    """
    with page.style():
        figure = page.full(2.9)
        left, middle, right = figure.subplots(1, 3)
        draw_panels((left, middle, right), summaries)
        _published(left, summaries["W"], PUBLISHED_PROBABILITY)
        for values in PUBLISHED.values():
            _published(middle, summaries["W"], dict(zip(STEPS, 1 - np.asarray(values), strict=True)))
        left.legend(loc="lower right")
        page.add_counts(figure, summaries, "Means over kept seeds; bands: 95 % bootstrap intervals of the mean.")
    return figure


def _published(axes: Axes, one: xarray.Dataset, values: Mapping[int, float]) -> None:
    """Mark the published means at the steps that the run reaches."""
    steps = [step for step in values if step <= int(one["snapshot"][-1])]
    if steps:
        palette.published(axes, steps, [values[step] for step in steps], "2308.16898")
