"""The multi-token figure of a ReLU head: 1 - correlation over the run, selected and not, and against what is masked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.several_tokens.evidence import EXACT, WITHOUT
from jaxattn.experiments.several_tokens.looks import FITTED, LOOKS
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.study.style import page, palette

# Probabilities below this are drawn here.
_LEAST = 1e-20


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a column a dimension: with the published selection, without one, and the scatter of both.

    The runs on the exact direction are judged, and not drawn.

    Args:
        summaries: of `claims.summarize`.
    """
    summaries = {run: one for run, one in summaries.items() if not run.endswith(EXACT)}
    runs = [run for run in summaries if not run.endswith(WITHOUT)]
    with page.style():
        figure = page.full(6.6)
        panels = figure.subplots(3, len(runs), sharey="row", sharex="row", squeeze=False)
        for column, run in enumerate(runs):
            for row, name in enumerate((run, run + WITHOUT)):
                _curves(panels[row, column], summaries[name], published=row == 0)
            _scatter(panels[2, column], summaries[run], summaries[run + WITHOUT])
            panels[0, column].set_title(f"$d = {summaries[run].attrs['d']}$")
        for row, label in enumerate(("(a) published selection", "(b) no selection", "(c) both, at the end")):
            what = "" if row < 2 else r" with $W_{\mathrm{fin}} + C\,W_{\mathrm{mm}}$"
            panels[row, 0].set_ylabel(f"{label}\n1 - correlation{what}")
        if panels[0, 0].lines:
            panels[0, 0].legend(loc="lower left", ncols=2)
        panels[2, 0].legend(loc="lower right", markerscale=3, reverse=True)
        page.add_counts(
            figure,
            summaries,
            f"Means over runs with 95 % bootstrap intervals. Without a selection: of the first 500 runs. {FITTED}",
            counted="runs",
        )
    return figure


def _curves(axes: Axes, summary: xarray.Dataset, *, published: bool) -> None:
    axes.set(yscale="log", xlabel="step", ylim=(1.5e-3, 1.3))
    if "off" not in summary:
        axes.text(0.5, 0.5, "no run is kept", transform=axes.transAxes, ha="center")
        return
    steps = summary["snapshot"].values
    for solution, (label, colour, dashes, _) in LOOKS.items():
        one = summary.sel(solution=solution)
        curve = (one[name].values for name in ("off", "off_low", "off_high"))
        page.band(axes, steps, *curve, color=colour, linestyle=dashes, label=label)
        number = PUBLISHED.get(solution, {}).get(int(summary.attrs["d"]))
        if published and number is not None:
            palette.published(axes, steps[-1], number, "2308.16898")


def _scatter(axes: Axes, selected: xarray.Dataset, every: xarray.Dataset) -> None:
    rest = every.isel(seed=~every["published"].values)
    for one, colour, label in (
        (rest, palette.EXCLUDED, "excluded by it"),
        (selected, palette.TEAL, "published selection"),
    ):
        off = one["last"].sel(solution="W_SVMeq").values
        x, y = np.maximum(one["masked"].values, _LEAST), np.maximum(off, 1e-16)
        axes.plot(x, y, ".", color=colour, markersize=2.5, alpha=0.6, linewidth=0, label=label, rasterized=True)
    axes.set(xscale="log", yscale="log", xlabel="largest masked probability")
    axes.set(xlim=(_LEAST / 3, 1), ylim=(1e-6, 1.5))
