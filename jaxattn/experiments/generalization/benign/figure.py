"""The figure of flipped labels: test accuracy against the signal, and the course of training."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.generalization.benign.bands import BANDS, FEWEST, WEAKER
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_COLOURS = (*palette.ramp(3), palette.WINE, palette.ROSE)
_MARKERS = ("o", "s", "^", "D", "v")
_COURSE = {
    "clean": (palette.INK, "-", "right labels fit"),
    "flipped": (palette.WINE, "--", "flipped labels fit"),
    "test": (palette.TEAL, "-.", "test accuracy"),
    "finds": (palette.AMBER, ":", "signal attended (new)"),
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw test accuracies against the strength of the signal, and the courses of its three bands."""
    runs = {name: run for name, run in summaries.items() if name not in BANDS}
    given = {name: run for name, run in runs.items() if not name.endswith(WEAKER)}
    with page.style():
        figure = page.full(5.2)
        (ends, high), (low, weak) = figure.subplots(2, 2)
        for (name, run), colour, marker in zip(given.items(), _COLOURS, _MARKERS, strict=False):
            seen = run["by_strength_seeds"].values >= FEWEST
            x, y, error = (run[part].values[seen] for part in ("bin", "by_strength", "by_strength_error"))
            look = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 1}
            ends.errorbar(x, y, 1.96 * error, label=_written(name), **look)
        ends.set(xscale="log", ylabel="test accuracy at the end", ylim=(0.45, 1.03))
        ends.set(title="(a) given head, by the strength of the signal", xlabel=r"$\mu\,(n/d)^{1/4}$")
        ends.legend(loc="lower right", title="mean, 95 % interval")
        _course(high, summaries["high"], "(b) given head, high ratio")
        _course(low, summaries["low, weaker head"], "(c) weaker head, low ratio, strong signal")
        _course(weak, summaries["weak"], "(d) given head, weak signal")
        low.legend(loc="lower right", labelspacing=0.25, borderaxespad=0.2)
        figure.suptitle(
            f"Overfitting of flipped labels is benign at a low ratio: {judgements['benign:low-snr'].verdict}; harmful "
            f"with a weak signal: {judgements['benign:weak'].verdict}"
        )
        page.add_counts(
            figure,
            runs,
            f"(a): bins of at least {FEWEST} seeds. (b): {_description('high')}; (c): {_description('low')}; "
            f"(d): {_description('weak')}. Means over the seeds of all runs, against the mean of log time; signal "
            "attended: mean attention on the signal tokens of new inputs. The weaker head also reads noise.",
        )
    return figure


def _course(axes: Axes, summary: xarray.Dataset, title: str) -> None:
    for name, (colour, dashes, label) in _COURSE.items():
        axes.plot(summary["time"].values, summary[name].values, color=colour, linestyle=dashes, label=label)
    axes.set(title=title, xlabel="time of the flow", ylabel="share", ylim=(-0.03, 1.03))
    ticks = np.arange(-5, 61, 5)
    inside = ticks[(ticks >= summary["time"].values.min()) & (ticks <= summary["time"].values.max())]
    axes.set_xticks(inside[:: max(1, len(inside) // 6)])
    axes.xaxis.set_major_formatter(lambda value, _: f"$10^{{{value:.0f}}}$")


def _written(run: str) -> str:
    n, d = run.removeprefix("n = ").split(", d = ")
    return f"$n = {n}$, $d = {d.replace(',', '{,}')}$"


def _description(band: str) -> str:
    written = {"mu^2": "$\\mu^2$", "mu ": "$\\mu$ ", "^(1/4)": "$^{1/4}$", "<=": "$\\leq$", ">=": "$\\geq$"}
    formula = BANDS[band].description
    for plain, tex in written.items():
        formula = formula.replace(plain, tex)
    return formula
