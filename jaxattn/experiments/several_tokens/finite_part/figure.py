"""The figure of the finite part: descended against predicted ratios under both heads, and how many are predicted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from jaxattn.experiments.several_tokens.evidence import WITHOUT, estimate
from jaxattn.experiments.several_tokens.finite_part.claims import AGREES, CLAIMS, HEADS, MOST
from jaxattn.experiments.several_tokens.prediction import KINDS
from jaxattn.study.claims import Outcome, above, between, refuted, total
from jaxattn.study.style import page, palette

_HEADS = {"quadratic": r"$v \cdot x - \lambda \|x\|^2$", "ReLU": "ReLU head"}
_LOOKS = {"": (palette.TEAL, "published selection", 3), WITHOUT: (palette.GUIDE, "no selection", 2)}
_SHADES = (palette.TEAL, palette.SKY, palette.WINE)


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw the scatter of each head, with and without a selection, and of what kind the inputs are.

    Args:
        summaries: of `claims.summarize`.
    """
    with page.style():
        figure = page.full(3.6)
        *panels, kinds = figure.subplots(1, 3)
        largest = max([2.0, *(float(np.abs(one[name]).max()) for one in summaries.values() for name in _ratios(one))])
        for axes, head, letter in zip(panels, HEADS, "ab", strict=True):
            parts = {suffix: summaries[head + suffix] for suffix in _LOOKS}
            _scatter(axes, parts, 1.05 * largest)
            axes.set(title=f"({letter}) {_HEADS[head]}: {_agreement(parts)}", xlabel="log ratio predicted")
        panels[0].set_ylabel("log ratio at the end of descent")
        _bars(kinds, summaries)
        handles = [Patch(color=shade, label=kind) for kind, shade in zip(KINDS, _SHADES, strict=True)]
        place = {"loc": "outside upper right", "ncols": len(KINDS), "columnspacing": 1.2}
        figure.legend(handles=handles, title="(c): best distribution on the selected set", **place)
        by_part = {
            label: xarray.Dataset(attrs=total({head: summaries[head + suffix] for head in HEADS}))
            for suffix, (_, label, _) in _LOOKS.items()
        }
        page.add_counts(
            figure, by_part, "(a), (b): ratios of attention within sets of the kind 'mixes the set'.", "runs"
        )
    return figure


def _ratios(one: xarray.Dataset) -> tuple[str, ...]:
    return ("predicted", "descended") if one.sizes["pair"] else ()


def _scatter(axes: Axes, parts: Mapping[str, xarray.Dataset], limit: float) -> None:
    axes.plot([-limit, limit], [-limit, limit], color=palette.INK, linewidth=0.7, linestyle=":")
    for suffix in reversed(_LOOKS):
        colour, _, size = _LOOKS[suffix]
        one = parts[suffix]
        axes.plot(one["predicted"], one["descended"], ".", color=colour, markersize=size, linewidth=0, rasterized=True)
    corners = ((0.03, 0.98, "left", "top"), (0.97, 0.02, "right", "bottom"))
    for (suffix, (colour, label, _)), (x, y, ha, va) in zip(_LOOKS.items(), corners, strict=True):
        look = {"color": colour, "fontsize": page.SMALLEST, "transform": axes.transAxes}
        axes.text(x, y, f"{label}:\n{_line(parts[suffix])}", ha=ha, va=va, multialignment="left", **look)
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit))


def _line(one: xarray.Dataset) -> str:
    if "slope" not in one:
        return "too few for a line"
    return f"slope {float(one['slope']):.3f}, rms {float(one['rms']):.2f}"


def _agreement(parts: Mapping[str, xarray.Dataset]) -> str:
    """Say in which part the line differs from equality by more than the claims allow."""
    named = {"": "with the selection", WITHOUT: "without selection"}
    found = {named[suffix]: _agrees(one) for suffix, one in parts.items()}
    off = [name for name, outcome in found.items() if outcome is Outcome.BROKEN]
    if off:
        return f"ratios differ from predictions {' and '.join(off)}"
    agree = all(outcome is Outcome.MET for outcome in found.values())
    return "ratios are those predicted" if agree else "agreement not decided"


def _agrees(one: xarray.Dataset) -> Outcome:
    outcomes = [
        between(name, estimate(one, name), expected - AGREES, expected + AGREES).outcome
        for name, expected in (("slope", 1.0), ("intercept", 0.0))
    ]
    return next((each for each in (Outcome.BROKEN, Outcome.UNCLEAR) if each in outcomes), Outcome.MET)


def _bars(axes: Axes, summaries: Mapping[str, xarray.Dataset]) -> None:
    """Draw the shares of the kinds as one bar a head and part."""
    names = []
    for place, (run, summary) in enumerate(summaries.items()):
        number, left = summary.sizes["mixed"], 0.0
        for kind, shade in enumerate(_SHADES):
            share = float((summary["kind"] == kind).sum()) / max(number, 1)
            axes.barh(place, share, left=left, color=shade)
            left += share
        head, suffix = run.removesuffix(WITHOUT), WITHOUT if run.endswith(WITHOUT) else ""
        names.append(f"{head},\n{_LOOKS[suffix][1]},\n{number:,} inputs")
    axes.set_yticks(range(len(summaries)), names)
    axes.set(title=f"(c) {_determined(summaries)}", xlabel="share of the inputs", xlim=(0, 1))
    axes.invert_yaxis()


def _determined(summaries: Mapping[str, xarray.Dataset]) -> str:
    """Say under which heads too few inputs have a unique best distribution that mixes the set."""
    decided = True
    for head in HEADS:
        shares = [estimate(summaries[head + suffix], "determined") for suffix in _LOOKS]
        outcomes = {above("determined", share, MOST).outcome for share in shares}
        if Outcome.BROKEN in outcomes:
            is_refuted = f"finite-part:{head}" in refuted(CLAIMS, summaries)
            said = " and ".join(f"{share.mean:.0%}" for share in shares)
            return f"{head}: {'claim refuted, ' if is_refuted else ''}{said} mix the set"
        decided = decided and outcomes == {Outcome.MET}
    return f"under both heads more than {MOST:.0%} mix the set" if decided else "not decided whether most mix the set"
