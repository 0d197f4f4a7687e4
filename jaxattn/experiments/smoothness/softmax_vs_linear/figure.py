"""The figure of softmax attention beside linear attention: curvature and largest steps over the embeddings' scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from jaxtyping import Bool, Float
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
        "linestyle": "--",
        "marker": "D",
        "markersize": 3,
        "label": "curvature, softmax at its bound",
    },
}


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row a loss: the ratio of the curvatures, the largest steps of all texts, and their ratios."""
    one = summaries["texts"]
    with page.style():
        figure = page.full(6.6)
        panels = figure.subplots(one.sizes["loss"], 3)
        letters = iter("abcdefghi")
        for row, loss in zip(panels, one["loss"].values, strict=True):
            for axes, panel in zip(row, (_curvatures, _steps, _ratios), strict=True):
                axes.set_title(f"({next(letters)}) {loss} loss: {panel(axes, one.sel(loss=loss))}")
                axes.set(xlabel="scale $s$ of the embeddings", yscale="log")
                axes.set_xscale("log", base=2)
                axes.set_xticks(one["scale"].values, [f"{s:g}" for s in one["scale"].values])
                axes.minorticks_off()
                axes.axhline(1, color=palette.INK, linewidth=0.7)
        figure.legend(handles=_key(one), loc="outside upper center", ncols=3)
        page.add_counts(
            figure,
            summaries,
            "Points: one a text. A step descends if it raises the risk in none of 500 steps from $W = 0$; where every "
            "step tried descends, the largest is a lower bound. Numbers in (c), (f): texts in which it is one for both "
            "attentions, so that the ratio is unknown. Curves: geometric means over texts with 95 % bootstrap "
            "intervals. Titles of (a), (d): softmax is rougher by the interval of what is found, smoother by that of "
            "its derived bound. Titles of (b), (e): the share of bounds.",
            counted="texts",
        )
    return figure


def _key(one: xarray.Dataset) -> list[Line2D]:
    """Return what colours and marks stand for."""
    mark: dict[str, Any] = {"linestyle": "none", "markersize": 4}
    grey: dict[str, Any] = {**mark, "color": palette.GUIDE}
    colours = [Line2D([], [], **mark, color=colour, marker="o", label=name) for name, (colour, _) in _LOOKS.items()]
    return [
        *colours,
        Line2D([], [], **mark, color=palette.ROSE, marker="o", label="step, softmax / linear"),
        *(Line2D([], [], **look) for look in _CURVES.values()),
        Line2D([], [], **grey, marker="o", label="no word has two successors"),
        Line2D([], [], **grey, marker="o", markerfacecolor="none", label="some word has two successors"),
        Line2D([], [], **grey, marker=_AT_LEAST, label="lower bound (either kind)"),
        Line2D([], [], **grey, marker=_AT_MOST, label="upper bound (either kind)"),
        Line2D([], [], color=palette.INK, linewidth=0.7, label="1: equal, or step = 2 / curvature"),
        Line2D(
            [],
            [],
            color=palette.INK,
            linewidth=0.7,
            linestyle=":",
            label=f"equal, if linear did not divide by {one.attrs['words']:g}",
        ),
    ]


def _curvatures(axes: Axes, one: xarray.Dataset) -> str:
    """Draw how much larger linear attention's curvature is than softmax attention's: as found, and at least."""
    scale = one["scale"].values
    for name, look in _CURVES.items():
        parts = (10 ** one[part].values for part in (name, f"{name}_low", f"{name}_high"))
        page.band(axes, scale, *parts, **look)
    axes.axhline(float(one.attrs["words"]) ** -2.0, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_ylabel("largest second derivative,\nlinear / softmax")
    rougher = int((one["smoother_high"] < 0).sum())
    smoother = int((one["smoother_surely_low"] > 0).sum())
    return f"rougher at\n{rougher} of {len(scale)} scales, smoother at {smoother}"


def _steps(axes: Axes, one: xarray.Dataset) -> str:
    """Draw the largest steps in units of the largest that a quadratic risk of the curvature at 0 allows."""
    scale, longer = one["scale"].values, []
    for name, (colour, aside) in _LOOKS.items():
        each = one.sel(attention=name)
        steps = each["each_step"].values * each["each_at_zero"].values / 2
        beyond = each["each_beyond"].values.astype(bool)
        _points(axes, scale * aside, steps, ~beyond, one["forked"].values, colour)
        _bounds(axes, scale * aside, steps, beyond, _AT_LEAST, colour)
        longer.append(f"{name} {np.mean(beyond):.0%}")
    axes.set_ylabel("largest step that descends,\nin units of 2 / curvature at $W = 0$")
    return f"\nbounds: {', '.join(longer)}"


def _ratios(axes: Axes, one: xarray.Dataset) -> str:
    scale = one["scale"].values
    softmax, linear = (one.sel(attention=name) for name in _LOOKS)
    ratio = softmax["each_step"].values / linear["each_step"].values
    of_softmax, of_linear = (each["each_beyond"].values.astype(bool) for each in (softmax, linear))
    _points(axes, scale, ratio, ~of_softmax & ~of_linear, one["forked"].values, palette.ROSE)
    _bounds(axes, scale, ratio, of_softmax & ~of_linear, _AT_LEAST, palette.ROSE)
    _bounds(axes, scale, ratio, of_linear & ~of_softmax, _AT_MOST, palette.ROSE)
    for s, unknown in zip(scale, (of_softmax & of_linear).sum(axis=0), strict=True):
        if unknown:
            axes.text(s, 0.98, f"{unknown}", transform=axes.get_xaxis_transform(), ha="center", va="top", fontsize=7)
    # Room for the numbers.
    axes.margins(y=0.15)
    axes.axhline(float(one.attrs["words"]) ** -2.0, color=palette.INK, linewidth=0.7, linestyle=":")
    axes.set_ylabel("largest step, softmax / linear")
    shares = [f"{float(end):.0%}" for end in (one["larger"].min(), one["larger"].max())]
    return f"softmax\nlarger in {' to '.join(dict.fromkeys(shares))} of texts"


def _points(
    axes: Axes,
    x: Float[np.ndarray, " scale"],
    y: Float[np.ndarray, "text scale"],
    chosen: Bool[np.ndarray, "text scale"],
    forked: Bool[np.ndarray, " text"],
    colour: str,
) -> None:
    """Draw a point for each chosen text and scale, hollow where some word of the text has two successors."""
    x, hollow = np.broadcast_to(x, y.shape), np.broadcast_to(forked[:, None], y.shape)
    look = {"color": colour, "linestyle": "none", "markersize": 3.5, "markeredgewidth": 0.6, "alpha": 0.7}
    for face, of_face in (("none", hollow), (colour, ~hollow)):
        axes.plot(x[chosen & of_face], y[chosen & of_face], "o", markerfacecolor=face, **look)


def _bounds(
    axes: Axes,
    x: Float[np.ndarray, " scale"],
    y: Float[np.ndarray, "text scale"],
    chosen: Bool[np.ndarray, "text scale"],
    arrow: str,
    colour: str,
) -> None:
    """Draw an arrow at each chosen text and scale, away from the values that its bound rules out."""
    x = np.broadcast_to(x, y.shape)
    axes.plot(x[chosen], y[chosen], marker=arrow, color=colour, linestyle="none", markersize=6, alpha=0.5)
