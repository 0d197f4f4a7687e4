"""The gradient-sparsity figure: the share of pairs that carry the gradient, and what is left beside the limit's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from jaxattn.experiments.language.gradient_sparsity.claims import FEW, KINDS, STEPS, is_judged
from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

_COLOURS = {"vocabulary": palette.TEAL, "prefix": palette.WINE}
# By increasing d.
_DASHES, _MARKERS = ("--", "-", ":", "-."), ("s", "o", "^", "D")
# Multipliers are marked so far beyond the last step.
_BEYOND = 2.0
_CORES = {"feasible": "support vectors", "infeasible": "contested words"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw shares and what is left beside, of feasible texts in the first row, of others in the second."""
    runs = list(summaries.values())
    with page.style():
        figure = page.full(5.4)
        top, below = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.2, 4.7)))
        panels = below.subplots(2, 2, sharex=True, sharey="col")
        for row, kind, letters in zip(panels, KINDS, ("ab", "cd"), strict=True):
            own = [run for run in runs if f"{kind}_share" in run]
            for run in own:
                for axes, name in zip(row, ("share", "beside"), strict=True):
                    curve = (run[f"{kind}_{name}{part}"].values for part in ("", "_low", "_high"))
                    page.band(axes, run["snapshot"].values, *curve, **_look(run, runs))
                if kind == "feasible":
                    _multipliers(row[0], run, runs)
            judged = [run for run in own if is_judged(run, kind) and int(run["snapshot"][-1]) >= STEPS]
            row[0].set(
                title=f"({letters[0]}) {_shares(judged, kind)}", ylabel="share of pairs with\n99 % of the gradient"
            )
            row[1].set(title=f"({letters[1]}) {_beside(judged, kind)}", ylabel=f"share of gradient\noff {_CORES[kind]}")
            _texts(row[0], runs, kind)
        _limits(panels)
        _key(top, runs)
        page.add_counts(figure, summaries, _remark(summaries), counted="texts")
    return figure


def _look(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> dict[str, Any]:
    place = _place(run, runs)
    colour = _COLOURS.get(run.attrs["candidates"], palette.INK)
    return {"color": colour, "linestyle": _DASHES[place % len(_DASHES)]}


def _place(run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> int:
    return sorted({int(other.attrs["data.d"]) for other in runs}).index(int(run.attrs["data.d"]))


def _multipliers(axes: Axes, run: xarray.Dataset, runs: Sequence[xarray.Dataset]) -> None:
    axes.plot(
        _BEYOND * float(run["snapshot"][-1]),
        float(run["feasible_limit"]),
        color=_look(run, runs)["color"],
        marker=_MARKERS[_place(run, runs) % len(_MARKERS)],
        markersize=5,
        linestyle="none",
    )


def _limits(panels: np.ndarray) -> None:
    """Set the axes, and mark what the claim calls few."""
    for axes in panels.flat:
        axes.set_xscale("log")
    for axes in panels[:, 0]:
        axes.set_ylim(0, 1.02)
        axes.axhline(FEW, color=palette.GUIDE, linewidth=0.9, linestyle=":", zorder=1)
    if panels[0, 1].lines or panels[1, 1].lines:
        panels[0, 1].set(yscale="log", ylim=(None, 1.5))
    for axes in panels[1]:
        axes.set_xlabel("step")


def _key(part: SubFigure, runs: Sequence[xarray.Dataset]) -> None:
    """Explain colours, dashes, markers and the dotted line above all panels."""
    colours = {f"candidates: {run.attrs['candidates']}": _look(run, runs)["color"] for run in runs}
    dashes = {f"$d = {run.attrs['data.d']}$": _look(run, runs)["linestyle"] for run in runs}
    lines = [Line2D([], [], color=colour, label=label) for label, colour in colours.items()]
    lines += [Line2D([], [], color=palette.GUIDE, linestyle=dash, label=label) for label, dash in dashes.items()]
    marker = {"marker": _MARKERS[0], "markersize": 5, "linestyle": "none", "color": palette.GUIDE}
    lines.append(Line2D([], [], label="predicted limit", **marker))
    lines.append(Line2D([], [], color=palette.GUIDE, linewidth=0.9, linestyle=":", label="few: at most half"))
    part.legend(handles=lines, loc="center", ncols=len(lines), columnspacing=1.1)


def _shares(judged: Sequence[xarray.Dataset], kind: str) -> str:
    """Say in how many of the judged runs few pairs carry the gradient at the end."""
    if not judged:
        return f"{kind} texts: too few, or\ntoo short runs, to judge"
    met, broken = (sum(bounds) for bounds in zip(*(_few(run, kind) for run in judged), strict=True))
    says = f"refuted in {broken} of {len(judged)} runs" if broken else f"holds in {met} of {len(judged)} runs"
    ends = [100 * float(run[f"{kind}_share"][-1]) for run in judged]
    return f'{kind} texts: "few" {says};\n{_span(ends)} of the pairs are needed'


def _few(run: xarray.Dataset, kind: str) -> tuple[bool, bool]:
    """Return whether few pairs carry the gradient at the end, and whether more do, by the interval of their share."""
    low, high = (float(run[f"{kind}_share{part}"][-1]) for part in ("_low", "_high"))
    return high <= FEW, low > FEW


def _beside(judged: Sequence[xarray.Dataset], kind: str) -> str:
    """Say how much of the gradient is at most elsewhere at the end."""
    if not judged:
        return f"{kind} texts: too few, or\ntoo short runs, to judge"
    most = max(float(run[f"{kind}_beside"][-1]) for run in judged)
    return f"{kind} texts: at most {page.at_most(most)}\nis off the {_CORES[kind]} at the end"


def _texts(axes: Axes, runs: Sequence[xarray.Dataset], kind: str) -> None:
    """Write the numbers of texts into a panel."""
    numbers: dict[str, set[int]] = {}
    for run in runs:
        numbers.setdefault(run.attrs["candidates"], set()).add(int(run[f"{kind}_texts"]))
    few = {run.attrs["candidates"] for run in runs if not is_judged(run, kind)}
    lines = [
        f"{' or '.join(map(str, sorted(found)))} {name}{', not judged' * (name in few)}"
        for name, found in numbers.items()
    ]
    axes.text(0.03, 0.04, "\n".join(["texts:", *lines]), transform=axes.transAxes, fontsize=page.SMALLEST)


def _span(percents: Sequence[float]) -> str:
    ends = list(dict.fromkeys(f"{percent:.0f}" for percent in (min(percents), max(percents))))
    return f"{' to '.join(ends)} %"


def _remark(summaries: Datasets) -> str:
    """Say what pairs there are; candidates of equal numbers stand once."""
    pairs = {}
    for run in summaries.values():
        alone = f", {100 * float(run['dropped']):.0f} % of the prefixes have no choice" if float(run["dropped"]) else ""
        pairs[run.attrs["candidates"]] = f"{float(run['pairs']):.0f} ({run.attrs['candidates']}{alone})"
    return (
        "Bands: 95 % intervals of the mean. Predicted limit: by the multipliers. Contested words: different words that "
        f"follow the same one. Pairs of a prefix and a candidate per text: {', '.join(pairs.values())}."
    )
