"""The multi-token figure of a ReLU head: direction errors with and without the published selection of instances."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.several_tokens.alignment import FITTED, LOOKS, PARTS
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import PUBLISHED, differences
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.claims.criteria import Number
from jaxattn.study.style import page, palette
from jaxattn.study.style.counting import told

# Probabilities below this are drawn here.
_LEAST = 1e-20


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a column a dimension: with the published selection and without, ours minus published, and each run's error.

    The runs along the exact direction are judged, and not drawn.
    """
    selected = {name: run for name, run in summaries.items() if f"{name}{PARTS['every']}" in summaries}
    every = {name: summaries[f"{name}{PARTS['every']}"] for name in selected}
    apart = differences(selected)
    with page.style():
        figure = page.full(8.0)
        panels = figure.subplots(4, len(selected), sharey="row", sharex="row", squeeze=False)
        for column, (name, run) in zip(panels.T, selected.items(), strict=True):
            _curves(column[0], run, f"$d = {run.attrs['data.d']}$, kept:\n")
            _published(column[0], run)
            _curves(column[1], every[name], "kept: ")
            _differences(column[2], {solution: apart[f"{name}, {solution}"] for solution in PUBLISHED})
            _scatter(column[3], run, every[name])
        rows = (
            "(a) published selection\ndirection error, 1 - cos",
            "(b) no selection\ndirection error, 1 - cos",
            "(c) 1 - cos at the end,\nours minus published",
            "(d) both, at the end\n1 - cos with " + LOOKS["W_SVMeq"][0],
        )
        for axes, label in zip(panels[:, 0], rows, strict=True):
            axes.set_ylabel(label)
        panels[3, 0].legend(loc="lower right", markerscale=3, reverse=True)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        page.add_counts(
            figure,
            selected,
            f"(b), of the first runs: {told(every, 'runs')}\nAhead: by how much {LOOKS['W_mm'][0]} is nearer to $W$ at "
            "the end than the solution of the single most likely tokens. Bands: 95 % bootstrap intervals of the mean. "
            f"Bars: simultaneous 95 % intervals of {len(apart)} differences, if published means have standard errors "
            f"like ours; that all means are as published: {judgements['multi-token-mlp:numbers'].verdict}. {FITTED}",
            counted="runs",
        )
    return figure


def _curves(axes: Axes, summary: xarray.Dataset, start: str) -> None:
    kept = f"{start}{summary.attrs['kept']:,} of {summary.attrs['attempted']:,}"
    steps, ahead = summary["snapshot"].values, float(summary["order"])
    axes.set(yscale="log", xlabel="step", xlim=(0, 1.15 * steps[-1]), ylim=(1.5e-3, 1.3))
    axes.set_title(f"{kept}\n{LOOKS['W_mm'][0]} ahead by {ahead:.3f}")
    for solution, (label, colour, dashes, _) in LOOKS.items():
        of_solution = summary.sel(solution=solution)
        curve = (of_solution[name].values for name in ("off", "off_low", "off_high"))
        page.band(axes, steps, *curve, color=colour, linestyle=dashes, label=label)


def _published(axes: Axes, summary: xarray.Dataset) -> None:
    """Mark the published ends beside the curves, each joined to the end of its own."""
    last = float(summary["snapshot"][-1])
    for solution, by_d in PUBLISHED.items():
        end, published = float(summary["off"].sel(solution=solution)[-1]), by_d[summary.attrs["data.d"]]
        axes.plot([last, 1.1 * last], [end, published], color=LOOKS[solution][1], linewidth=0.8)
        palette.published(axes, 1.1 * last, published, "2308.16898")


def _differences(axes: Axes, apart: Mapping[str, Number]) -> None:
    for x, (solution, value) in enumerate(apart.items()):
        _, colour, _, marker = LOOKS[solution]
        error = [[value.mean - value.low], [value.high - value.mean]]
        axes.errorbar([x], [value.mean], error, fmt=marker, color=colour, markersize=4)
    axes.axhline(0, color=palette.INK, linewidth=0.7)
    axes.set_xticks(range(len(PUBLISHED)), ["sum", r"$W_{\mathrm{mm}}$", "single"])
    axes.set_xlim(-0.6, len(PUBLISHED) - 0.4)


def _scatter(axes: Axes, selected: xarray.Dataset, every: xarray.Dataset) -> None:
    rest = every.isel(seed=~every["published"].values)
    for runs, colour, label in (
        (rest, palette.EXCLUDED, "excluded by it"),
        (selected, palette.TEAL, "published selection"),
    ):
        off = runs["last"].sel(solution="W_SVMeq").values
        x, y = np.maximum(runs["masked"].values, _LEAST), np.maximum(off, 1e-16)
        axes.plot(x, y, ".", color=colour, markersize=2.5, alpha=0.6, linewidth=0, label=label, rasterized=True)
    axes.set(xscale="log", yscale="log", xlabel="largest masked probability")
    axes.set(xlim=(_LEAST / 3, 1), ylim=(1e-8, 1.5), xticks=[1e-20, 1e-10, 1])
