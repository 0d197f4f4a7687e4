"""The multi-token figure of a ReLU head: direction errors with and without the published selection of instances."""

from __future__ import annotations

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.several_tokens.alignment import FITTED, LOOKS, PARTS
from jaxattn.experiments.several_tokens.multi_token_mlp.claims import AGAIN, PUBLISHED, not_distinguishable
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Diamonds stand beside the marks that they are compared with.
_BESIDE = 0.35


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row with the published selection and one without: over the steps for one dimension, at the end for all.

    The runs along the exact direction, and those under another key, are judged, and not drawn.
    """
    drawn = {name: run for name, run in summaries.items() if AGAIN not in name}
    selected = {name: run for name, run in drawn.items() if f"{name}{PARTS['every']}" in drawn}
    every = {name: summaries[f"{name}{PARTS['every']}"] for name in selected}
    verdicts = {name: judgements[f"multi-token-mlp:{name}"].verdict for name in ("selected", "every", "numbers")}
    with page.style():
        figure = page.full(5.4)
        panels = figure.subplots(2, 2, sharey=True, sharex="col")
        for row, runs in zip(panels, (selected, every), strict=True):
            first = next(iter(runs.values()))
            _along_steps(row[0], first)
            _at_the_end(row[1], list(runs.values()))
            row[0].set_ylabel("direction error, 1 - cos")
        _published(panels[0, 1], list(selected.values()))
        d = next(iter(selected.values())).attrs["data.d"]
        panels[0, 0].set_title(f"(a) published selection, $d = {d}$")
        alike = len(not_distinguishable(selected))
        panels[0, 1].set_title(
            f"published means: {verdicts['numbers']}; {alike} of {_means(selected)} not distinguishable"
        )
        panels[1, 0].set_title(f"(b) no selection, $d = {d}$")
        panels[1, 1].set_title("no selection, at the end")
        panels[1, 0].set_xlabel("step")
        panels[1, 1].set_xlabel("dimension $d$, at the end")
        handles = [*panels[0, 1].get_legend_handles_labels()[0], Patch(color=palette.EXCLUDED, alpha=0.4)]
        labels = [*panels[0, 1].get_legend_handles_labels()[1], "95 % interval"]
        panels[1, 0].legend(handles, labels, loc="lower center", ncols=2, columnspacing=1.0)
        figure.suptitle(
            f"ReLU head: the single tokens describe $W$ worst: with the published selection {verdicts['selected']}, "
            f"without it {verdicts['every']}"
        )
        page.note(
            figure,
            f"Runs: (a) {_kept(selected)} are kept by the published selection; (b) {_kept(every)}, as the others mask "
            "no token. Not distinguishable: our mean would agree as well with a published one three times as large, by "
            f"simultaneous 95 % intervals, if published means have standard errors like ours. {FITTED}",
        )
    return figure


def _kept(runs: Datasets) -> str:
    """Say how many runs are kept for the first and the last dimension."""
    first, *_, last = runs.values()
    of = [f"{run.attrs['kept']:,} of {run.attrs['attempted']:,} ($d = {run.attrs['data.d']}$)" for run in (first, last)]
    return " to ".join(of)


def _means(runs: Datasets) -> int:
    """Return the number of published means of these runs."""
    return len(runs) * len(PUBLISHED)


def _along_steps(axes: Axes, summary: xarray.Dataset) -> None:
    axes.set(yscale="log")
    for solution, (_, colour, dashes, _) in LOOKS.items():
        of_solution = summary.sel(solution=solution)
        curve = (of_solution[name].values for name in ("off", "off_low", "off_high"))
        page.band(axes, summary["snapshot"].values, *curve, color=colour, linestyle=dashes)


def _at_the_end(axes: Axes, runs: list[xarray.Dataset]) -> None:
    d = [run.attrs["data.d"] for run in runs]
    for solution, (label, colour, dashes, marker) in LOOKS.items():
        ends = [run.sel(solution=solution).isel(snapshot=-1) for run in runs]
        means = (np.array([float(end[name]) for end in ends]) for name in ("off", "off_low", "off_high"))
        page.bars(axes, d, *means, color=colour, linestyle=dashes, marker=marker, label=label)
    axes.set_xticks(d)


def _published(axes: Axes, runs: list[xarray.Dataset]) -> None:
    """Mark the published means, each joined to ours."""
    for run in runs:
        d = run.attrs["data.d"]
        for solution, by_d in PUBLISHED.items():
            ours = float(run["off"].sel(solution=solution)[-1])
            axes.plot([d, d + _BESIDE], [ours, by_d[d]], color=LOOKS[solution][1], linewidth=0.8)
            palette.published(axes, d + _BESIDE, by_d[d], "2308.16898, notebook")
