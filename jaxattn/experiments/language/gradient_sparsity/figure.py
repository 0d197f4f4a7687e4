"""The gradient-sparsity figure: the share of pairs that carry the gradient, and what is left beside the limit's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from jaxattn.experiments.language.gradient_sparsity.claims import CORES, FEW, is_judged
from jaxattn.study.claims import Datasets, Judgements, family
from jaxattn.study.style import page, palette

_COLOURS = {"vocabulary": palette.TEAL, "prefix": palette.WINE}
# By d.
_DASHES, _MARKERS = {10: "--", 100: "-"}, {10: "s", 100: "o"}
_LIMIT: dict[str, Any] = {"markersize": 5}
_FEW: dict[str, Any] = {"linewidth": 0.9, "linestyle": ":"}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw shares and what is left beside, of feasible texts in the first row, of others in the second."""
    runs = list(family(summaries, {"masked": 0}).values())
    with page.style():
        figure = page.full(5.7)
        top, below = (figure.add_subfigure(row) for row in figure.add_gridspec(2, 1, height_ratios=(0.2, 4.7)))
        panels = below.subplots(2, 2, sharex=True, sharey="col")
        for row, kind, letters in zip(panels, CORES, ("ab", "cd"), strict=True):
            _row(row, runs, kind, letters)
        panels[0, 1].set(xscale="log", yscale="log", ylim=(None, 1.5))
        for axes in panels[1]:
            axes.set_xlabel("step")
        _key(top)
        few, disregarded = (judgements[f"gradient-sparsity:{name}"].verdict for name in ("few", "disregarded"))
        figure.suptitle(
            f"Only a few tokens contribute to the gradient: {few}; the others can be disregarded: {disregarded}"
        )
        page.add_counts(figure, summaries, _remark(runs), counted="texts")
    return figure


def _row(row: np.ndarray, runs: Sequence[xarray.Dataset], kind: str, letters: str) -> None:
    """Draw what was measured of one kind of texts."""
    shares, beside = row
    drawn = [run for run in runs if f"{kind}_share" in run]
    for run in drawn:
        colour, d = _COLOURS[run.attrs["candidates"]], run.attrs["data.d"]
        for axes, name in ((shares, "share"), (beside, "beside")):
            curve = (run[f"{kind}_{name}{part}"].values for part in ("", "_low", "_high"))
            page.band(axes, run["snapshot"].values, *curve, color=colour, linestyle=_DASHES[d])
        if kind == "feasible":
            # The limit stands beyond the last step.
            last, limit = 2 * float(run["snapshot"][-1]), float(run["feasible_limit"])
            shares.plot(last, limit, marker=_MARKERS[d], color=colour, linestyle="none", **_LIMIT)
    needed = page.span((100 * float(run[f"{kind}_share"][-1]) for run in drawn), ".0f", " %")
    off = page.at_most(max((float(run[f"{kind}_beside"][-1]) for run in drawn), default=1.0))
    shares.set(title=f"({letters[0]}) {kind} texts:\n{needed} of the pairs are needed", ylim=(0, 1.02))
    shares.set_ylabel("share of pairs with\n99 % of the gradient")
    shares.axhline(FEW, color=palette.GUIDE, zorder=1, **_FEW)
    beside.set_title(f"({letters[1]}) {kind} texts: at most {off}\nis off the {CORES[kind]} at the end")
    beside.set_ylabel(f"share of gradient\noff {CORES[kind]}")
    _texts(shares, runs, kind)


def _texts(axes: Axes, runs: Sequence[xarray.Dataset], kind: str) -> None:
    """Write the numbers of texts into a panel."""
    lines = ["texts:"]
    for candidates in _COLOURS:
        alike = [run for run in runs if run.attrs["candidates"] == candidates]
        few = "" if all(is_judged(run, kind) for run in alike) else ", not judged"
        lines.append(f"{page.span(int(run[f'{kind}_texts']) for run in alike)} {candidates}{few}")
    axes.text(0.03, 0.04, "\n".join(lines), transform=axes.transAxes, fontsize=page.SMALLEST)


def _key(part: SubFigure) -> None:
    """Explain colours, dashes, markers and the dotted line above all panels."""
    lines = [Line2D([], [], color=colour, label=f"candidates: {name}") for name, colour in _COLOURS.items()]
    guides: list[dict[str, Any]] = [
        _LIMIT | {"linestyle": dash, "marker": _MARKERS[d], "label": f"$d = {d}$"} for d, dash in _DASHES.items()
    ]
    guides += [_FEW | {"label": "few: at most half"}]
    lines += [Line2D([], [], color=palette.GUIDE, **guide) for guide in guides]
    part.legend(handles=lines, loc="center", ncols=len(lines), columnspacing=1.1)


def _remark(runs: Sequence[xarray.Dataset]) -> str:
    """Say what pairs there are; candidates of equal numbers stand once."""
    pairs = {}
    for run in runs:
        alone = f", {100 * float(run['dropped']):.0f} % of the prefixes have no choice" if float(run["dropped"]) else ""
        pairs[run.attrs["candidates"]] = f"{float(run['pairs']):.0f} ({run.attrs['candidates']}{alone})"
    return (
        "Bands: 95 % intervals of the mean. Markers at the right: limits that the multipliers predict. Contested "
        "words: different words that follow the same one. Pairs of a prefix and a candidate per text: "
        f"{', '.join(pairs.values())}."
    )
