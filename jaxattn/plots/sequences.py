"""The sequence and causal figures: the panels of local convergence, and how far each run is from its own solution."""

from __future__ import annotations

from collections.abc import Mapping

import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.plots import page
from jaxattn.plots.local_convergence import draw_panels

_LOOKS = {
    "W": ("frobenius", "$W$, Frobenius", "#0072B2", "-"),
    "KQ": ("nuclear", "$(K, Q)$, nuclear", "#D55E00", "--"),
    "W, exact direction": ("frobenius", "$W$, exact direction", "#009E73", ":"),
}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw four panels, each curve a mean over seeds with its 95 % interval.

    Args:
        summaries: as `experiments.sequences.summarize` returns them.
    """
    with page.style():
        figure = page.new_figure(11.4, 2.9)
        *panels, last = figure.subplots(1, 4)
        draw_panels(panels, summaries)
        for run, (norm, *look) in _LOOKS.items():
            _distance(last, summaries[run].sel(norm=norm), *look)
        last.set(title="(d) from its own solution", xlabel="step", ylabel="1 - correlation", xscale="log", yscale="log")
        last.legend(loc="lower left")
        one = summaries["W"].attrs
        page.add_counts(
            figure,
            summaries,
            "Means over kept seeds; bands: 95 % bootstrap intervals of the mean."
            + (" Position 0 sees one token, which counts as probability 1." if one["attention"] == "causal" else "")
            + f"\nOne W for {one['inputs']} inputs, one a position; the optimal tokens of all of them are separable in "
            f"{one['optimal_kept']} of {one['attempted']} problems.",
        )
    return figure


def _distance(axes: Axes, summary: xarray.Dataset, label: str, colour: str, dashes: str) -> None:
    curve = (1 - summary[part].values for part in ("correlation", "correlation_high", "correlation_low"))
    page.band(axes, summary["snapshot"].values, *curve, color=colour, linestyle=dashes, label=label)
