"""The figure of the limit of (K, Q): distance and margin along the steps by the rule of the step, and the rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.experiments.local.kq_limit.claims import NORMS, POWER, PUBLISHED, chosen, worst
from jaxattn.study.claims import Number, Outcome, below, total
from jaxattn.study.style import page, palette

_STEPS = {
    "constant": ("constant step", palette.TEAL),
    "falling": ("step like $k^{-1/2}$", palette.WINE),
    "relative": ("step / norm", palette.AMBER),
}
_AS_PUBLISHED = ("as published", palette.GUIDE)
# Line, marker and its face for each normalization, and for the published run.
_LOOKS = dict(zip(NORMS, (("-", "o", True), ("--", "s", False)), strict=True))
_DOTTED = (":", "o", True)
_OUTCOMES = {Outcome.MET: "falls on", Outcome.BROKEN: "stalls"}


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw three panels: distance and margin of each rule along the steps, and the exponents that claims are judged by.

    Args:
        summaries: of `summarize` in this folder.
    """
    drawn = {(step, norm): found for step in _STEPS for norm in NORMS if (found := _runs(summaries, step, norm))}
    published = chosen(summaries, **PUBLISHED)
    with page.style():
        figure = page.full(3.5)
        distance, margin, exponent = figure.subplots(1, 3)
        for (step, norm), runs in drawn.items():
            _both(distance, margin, _first(runs), color=_STEPS[step][1], linestyle=_LOOKS[norm][0])
        for one in published:
            _both(distance, margin, one, color=palette.GUIDE, linestyle=_DOTTED[0])
        ends = {f"{step}, {norm}": _first(runs) for (step, norm), runs in drawn.items()}
        if published:
            ends[_AS_PUBLISHED[0]] = published[0]
        off = {rule: float(one["off"][-1]) for rule, one in ends.items()}
        short = {rule: 1 - float(one["margin_ratio"][-1]) for rule, one in ends.items()}
        distance.set(title=f"(a) final error: {_ends(off, page.power)}", ylabel="direction error, 1 - cos")
        ratios = _ends(short, lambda value: f"{1 - value:.3f}")
        margin.set(title=f"(b) margin ratio: {ratios}", ylabel="1 - margin ratio")
        for axes in (distance, margin):
            axes.set(xlabel="step $k$", xscale="log", yscale="log")
        _exponents(exponent, drawn, published)
        figure.legend(handles=_key(), loc="outside upper center", ncols=3, handlelength=3)
        _count(figure, summaries, published)
    return figure


def _runs(summaries: Mapping[str, xarray.Dataset], step: str, norm: str) -> list[xarray.Dataset]:
    """Return the runs of a rule by their step size, without the published one."""
    size = PUBLISHED["step_size"]
    found = chosen(summaries, optimizer=norm, step=step)
    is_published = step == PUBLISHED["step"] and norm == PUBLISHED["optimizer"]
    return [one for one in found if not (is_published and one.attrs["step_size"] == size)]


def _first(runs: Sequence[xarray.Dataset]) -> xarray.Dataset:
    """Return the run with c = 1, or that with the smallest step."""
    return next((one for one in runs if one.attrs["step_size"] == 1.0), runs[0])


def _both(distance: Axes, margin: Axes, one: xarray.Dataset, **look: str) -> None:
    steps = one["snapshot"].values
    page.band(distance, steps, *(one[f"off{part}"].values for part in ("", "_low", "_high")), **look)
    page.band(margin, steps, *(1 - one[f"margin_ratio{part}"].values for part in ("", "_low", "_high")), **look)


def _ends(values: Mapping[str, float], of: Callable[[float], str]) -> str:
    """Write the number that the published run ends with, and the best of all, which is the smallest."""
    best = min(values, key=values.__getitem__)
    said = [f"{of(values[name])} as published" for name in (_AS_PUBLISHED[0],) if name in values]
    return ", ".join(said + ([f"best {of(values[best])}"] if best != _AS_PUBLISHED[0] else []))


def _exponents(
    axes: Axes, drawn: Mapping[tuple[str, str], Sequence[xarray.Dataset]], published: Sequence[xarray.Dataset]
) -> None:
    """Draw the largest exponent over c of each rule with its interval, and the threshold of still falling."""
    rows = {"published": _AS_PUBLISHED, **_STEPS}
    places = {row: float(place) for place, row in enumerate(rows)}
    _exponent(axes, places["published"], published, palette.GUIDE, _DOTTED)
    for (step, norm), runs in drawn.items():
        _exponent(axes, places[step] + (0.15 if norm == list(NORMS)[1] else -0.15), runs, _STEPS[step][1], _LOOKS[norm])
    axes.axvline(POWER, color=palette.INK, linewidth=0.7, linestyle=":")
    near = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points", "fontsize": page.SMALLEST}
    axes.annotate("stalls", (POWER, 0.0), (4, 4), ha="left", **near)
    axes.annotate("falls on", (POWER, 0.0), (-4, 4), ha="right", **near)
    axes.set_yticks(list(places.values()), [label for label, _ in rows.values()])
    for label, (_, colour) in zip(axes.get_yticklabels(), rows.values(), strict=True):
        label.set_color(colour)
    axes.set_ylim(len(rows) - 0.2, -0.5)
    # Room for both words.
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 4 * POWER), max(right, POWER + 0.35 * (right - left)))
    axes.set_xlabel(r"$p$ in 1 - cos $\sim \|W\|^p$")
    falling = [worst(runs, "power", largest=True) for (step, _), runs in drawn.items() if step != "constant"]
    said = [f"as published: {_outcome(worst([one], 'power', largest=True))}" for one in published]
    said += [f"decreasing steps: {_outcome(max(falling, key=lambda one: one.mean))}"] if falling else []
    axes.set_title(f"(c) {'; '.join(said)}")


def _exponent(
    axes: Axes, place: float, runs: Sequence[xarray.Dataset], colour: str, look: tuple[str, str, bool]
) -> None:
    if not runs:
        return
    p, (_, marker, filled) = worst(runs, "power", largest=True), look
    errors = np.clip([[p.mean - p.low], [p.high - p.mean]], 0, None)
    face = colour if filled else "white"
    axes.errorbar(p.mean, place, xerr=errors, color=colour, marker=marker, markersize=4, markerfacecolor=face)


def _outcome(p: Number) -> str:
    return _OUTCOMES.get(below("p", p, POWER).outcome, "open")


def _key() -> list[Line2D]:
    """Return what explains colours, and apart from them dashes and markers."""
    colours = [Line2D([], [], color=colour, label=label) for label, colour in _STEPS.values()]
    dashes = []
    for norm, (dash, marker, filled) in _LOOKS.items():
        look: dict[str, Any] = {"color": palette.INK, "linestyle": dash, "marker": marker, "markersize": 4}
        dashes.append(Line2D([], [], label=NORMS[norm], markerfacecolor=palette.INK if filled else "white", **look))
    size = PUBLISHED["step_size"]
    label = f"as published: constant step {size}, {NORMS[str(PUBLISHED['optimizer'])]}"
    dashes.append(Line2D([], [], color=palette.GUIDE, linestyle=_DOTTED[0], label=label))
    return [line for pair in zip(colours, dashes, strict=True) for line in pair]


def _count(figure: Figure, summaries: Mapping[str, xarray.Dataset], published: Sequence[xarray.Dataset]) -> None:
    names = [one.attrs["run"] for one in published]
    others = {run: one for run, one in summaries.items() if one.attrs["run"] not in names}
    named = {_AS_PUBLISHED[0]: published[0]} if published else {}
    if others:
        named[f"{len(others)} others together"] = xarray.Dataset(attrs=total(others))
    page.add_counts(
        figure,
        named,
        "(a) geometric, (b) arithmetic means with 95 % intervals, for c = 1 where not said. (c): fitted over the last "
        "factor of 100 in steps, with 95 % intervals, for the c with the largest $p$; the error counts as falling on "
        f"for $p$ below {POWER:g}.",
    )
