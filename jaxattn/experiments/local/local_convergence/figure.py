"""The local-convergence figure: probability (a), correlations of training W (b) and of training (K, Q) (c)."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.figure import Figure

from jaxattn.study.style import page
from jaxattn.study.style.curves import draw_panels


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the three panels, each curve a mean over seeds with its 95 % interval.

    Args:
        summaries: of the runs "W" and "KQ", as `summarize` in this folder returns them.
    """
    with page.style():
        figure = page.full(2.9)
        draw_panels(figure.subplots(1, 3), summaries)
        page.add_counts(figure, summaries, "Means over kept seeds; bands: 95 % bootstrap intervals of the mean.")
    return figure
