"""The local-convergence figure: saturation (a), direction errors of training W (b) and of training (K, Q) (c)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
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
        palette.published(left, list(PUBLISHED_PROBABILITY), list(PUBLISHED_PROBABILITY.values()), "2308.16898")
        for values in PUBLISHED.values():
            palette.published(middle, STEPS, 1 - np.asarray(values), "2308.16898")
        left.legend(loc="lower right")
        page.add_counts(figure, summaries, "Means over kept seeds; bands: 95 % bootstrap intervals of the mean.")
    return figure
