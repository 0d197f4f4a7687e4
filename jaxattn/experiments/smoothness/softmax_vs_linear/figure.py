"""The figure of softmax attention beside linear attention: curvature and largest steps over the embeddings' scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.study.claims import Datasets, Judgements
from jaxattn.study.style import page, palette

# Colour, and how far a text's points are moved aside.
_LOOKS = {"softmax": (palette.TEAL, 0.93), "linear": (palette.WINE, 1.07)}
# Of bounds: the value itself was not found.
_AT_LEAST, _AT_MOST = r"$\uparrow$", r"$\downarrow$"

# Of the ratio of curvatures, with what softmax attention's is taken to be.
_CURVES = {
    "smoother": {"color": palette.AMBER, "marker": "D", "markersize": 3, "label": "curvature, softmax as found"},
    "smoother_surely": {
        "color": palette.SKY,
        "marker": "D",
        "markersize": 3,
        "label": "curvature, softmax at its bound",
        "linestyle": "--",
    },
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row a loss: the ratio of the curvatures, the largest steps of all texts, and their ratios."""
    summary = summaries["texts"]
    scale = summary["scale"].values
    with page.style():
        figure = page.full(6.6)
        panels = figure.subplots(summary.sizes["loss"], 3)
        for row, letters, loss in zip(panels, ("abc", "def"), summary["loss"].values, strict=True):
            of_loss = summary.sel(loss=loss)
            verdict = judgements[f"softmax-vs-linear:curvature-{loss}"].verdict
            _curvatures(row[0], of_loss)
            findings = f'"softmax\nbends less" {verdict}', _steps(row[1], of_loss), _ratios(row[2], of_loss)
            for axes, letter, finding in zip(row, letters, findings, strict=True):
                axes.set_title(f"({letter}) {loss} loss: {finding}")
                axes.set(xlabel="scale $s$ of the embeddings", yscale="log")
                axes.set_xscale("log", base=2)
                axes.set_xticks(scale, [f"{s:g}" for s in scale])
                axes.minorticks_off()
                axes.axhline(1, color=palette.INK, linewidth=0.7)
        figure.legend(handles=_key(summary), loc="outside upper center", ncols=3)
        page.add_counts(
            figure,
            summaries,
            "Points: one a text. A step descends if it raises the risk in none of 500 steps from $W = 0$; where every "
            "step tried descends, the largest is a lower bound. Numbers in (c), (f): texts in which it is one for both "
            "attentions, so that the ratio is unknown. Curves: geometric means over texts with 95 % bootstrap "
            "intervals. Titles of (b), (e): the share of bounds.",
            counted="texts",
        )
    return figure


def _key(summary: xarray.Dataset) -> list[Line2D]:
    """Return what colours and marks stand for."""
    mark: dict[str, Any] = {"linestyle": "none", "markersize": 4, "marker": "o"}
    grey: dict[str, Any] = mark | {"color": palette.GUIDE}
    line: dict[str, Any] = {"color": palette.INK, "linewidth": 0.7}
    looks = [
        *(mark | {"color": colour, "label": name} for name, (colour, _) in _LOOKS.items()),
        mark | {"color": palette.ROSE, "label": "step, softmax / linear"},
        *_CURVES.values(),
        grey | {"label": "no word has two successors"},
        grey | {"markerfacecolor": "none", "label": "some word has two successors"},
        grey | {"marker": _AT_LEAST, "label": "lower bound (either kind)"},
        grey | {"marker": _AT_MOST, "label": "upper bound (either kind)"},
        line | {"label": "1: equal, or step = 2 / curvature"},
        line | {"linestyle": ":", "label": f"equal, if linear did not divide by {summary.attrs['words']:g}"},
    ]
    return [Line2D([], [], **look) for look in looks]


def _undivided(axes: Axes, summary: xarray.Dataset) -> None:
    """Draw where ratios were 1 if linear attention did not divide by the number of words."""
    axes.axhline(float(summary.attrs["words"]) ** -2.0, color=palette.INK, linewidth=0.7, linestyle=":")


def _curvatures(axes: Axes, summary: xarray.Dataset) -> None:
    """Draw how much larger linear attention's curvature is than softmax attention's: as found, and at least."""
    for name, look in _CURVES.items():
        parts = (10 ** summary[part].values for part in (name, f"{name}_low", f"{name}_high"))
        page.band(axes, summary["scale"].values, *parts, **look)
    _undivided(axes, summary)
    axes.set_ylabel("largest second derivative,\nlinear / softmax")


def _steps(axes: Axes, summary: xarray.Dataset) -> str:
    """Draw the largest steps, in units of the largest for a quadratic of the curvature at 0; return what is found."""
    longer = []
    for name, (colour, aside) in _LOOKS.items():
        each = summary.sel(attention=name)
        x, steps = summary["scale"].values * aside, each["each_step"].values * each["each_at_zero"].values / 2
        beyond = each["each_beyond"].values.astype(bool)
        _points(axes, x, steps, ~beyond, summary["forked"].values, colour)
        _bounds(axes, x, steps, beyond, _AT_LEAST, colour)
        longer.append(f"{name} {np.mean(beyond):.0%}")
    axes.set_ylabel("largest step that descends,\nin units of 2 / curvature at $W = 0$")
    return f"\nbounds: {', '.join(longer)}"


def _ratios(axes: Axes, summary: xarray.Dataset) -> str:
    """Draw the ratios of these steps, and in how many texts they are unknown; return what is found."""
    scale = summary["scale"].values
    softmax, linear = (summary.sel(attention=name) for name in _LOOKS)
    ratio = softmax["each_step"].values / linear["each_step"].values
    of_softmax, of_linear = (each["each_beyond"].values.astype(bool) for each in (softmax, linear))
    _points(axes, scale, ratio, ~of_softmax & ~of_linear, summary["forked"].values, palette.ROSE)
    _bounds(axes, scale, ratio, of_softmax & ~of_linear, _AT_LEAST, palette.ROSE)
    _bounds(axes, scale, ratio, of_linear & ~of_softmax, _AT_MOST, palette.ROSE)
    for s, unknown in zip(scale, (of_softmax & of_linear).sum(axis=0), strict=True):
        if unknown:
            axes.text(s, 0.98, f"{unknown}", transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=7)
    # Room for the numbers.
    axes.margins(y=0.15)
    _undivided(axes, summary)
    axes.set_ylabel("largest step, softmax / linear")
    larger = summary["larger"]
    return f"softmax\nlarger in {float(larger.min()):.0%} to {float(larger.max()):.0%} of texts"


def _points(axes: Axes, x: np.ndarray, y: np.ndarray, chosen: np.ndarray, forked: np.ndarray, colour: str) -> None:
    """Draw a point for each chosen text and scale, hollow where some word of the text has two successors."""
    x = np.broadcast_to(x, y.shape)
    look = {"color": colour, "linestyle": "none", "markersize": 3.5, "markeredgewidth": 0.6, "alpha": 0.7}
    for face, of_face in (("none", chosen & forked[:, None]), (colour, chosen & ~forked[:, None])):
        axes.plot(x[of_face], y[of_face], "o", markerfacecolor=face, **look)


def _bounds(axes: Axes, x: np.ndarray, y: np.ndarray, chosen: np.ndarray, arrow: str, colour: str) -> None:
    """Draw an arrow at each chosen text and scale, away from the values that its bound rules out."""
    x = np.broadcast_to(x, y.shape)
    axes.plot(x[chosen], y[chosen], marker=arrow, color=colour, linestyle="none", markersize=6, alpha=0.5)
