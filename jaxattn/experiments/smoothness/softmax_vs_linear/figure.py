"""The figure of softmax attention beside linear attention: curvature and largest steps over the embeddings' scale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jaxattn.study.style import page, palette

# Colour, dashes, and how far a text's points are moved aside.
_LOOKS = {"softmax": (palette.TEAL, "-", 0.93), "linear": (palette.WINE, "--", 1.07)}
# The power of the scale that both attentions' squared risks bend with.
_POWER = 6


def draw(summaries: Mapping[str, xarray.Dataset]) -> Figure:
    """Draw a row a loss: the curvatures, the largest steps of all texts, and the ratios of both.

    Args:
        summaries: of `claims.summarize`.
    """
    (one,) = summaries.values()
    with page.style():
        figure = page.full(6.4)
        panels = figure.subplots(one.sizes["loss"], 3)
        letters = iter("abcdefghi")
        for row, loss in zip(panels, one["loss"].values, strict=True):
            of_loss = one.sel(loss=loss)
            for axes, panel, what in zip(
                row,
                (_curvatures, _steps, _ratios),
                ("curvature", "largest step", "softmax against linear"),
                strict=True,
            ):
                panel(axes, of_loss)
                axes.set_xscale("log", base=2)
                axes.set(
                    title=f"({next(letters)}) {loss} loss: {what}",
                    xlabel="scale $s$ of the embeddings",
                    xticks=one["scale"].values,
                    xticklabels=[f"{s:g}" for s in one["scale"].values],
                )
                axes.minorticks_off()
        # Below all curves.
        panels[0, 0].set_ylim(bottom=panels[0, 0].get_ylim()[0] / 300)
        panels[0, 0].legend(loc="lower right")
        panels[1, 1].legend(handles=_legend(), loc="center", bbox_to_anchor=(0.5, 0.62))
        panels[1, 2].legend(loc="center", bbox_to_anchor=(0.5, 0.72))
        page.add_counts(
            figure,
            summaries,
            "Curves: geometric means over texts with 95 % bootstrap intervals. Points: one a text, hollow where some "
            "word has two successors; triangles: every step tried descends. A step descends if it raises the risk in "
            "none of 500 steps from $W = 0$. In (c), (f) points are step ratios, softmax / linear, triangles where "
            "either is a triangle; dotted: equality, if linear attention were a sum of logits and no mean.",
            counted="texts",
        )
    return figure


def _legend() -> list[Line2D]:
    """Return what the lines and points of the steps stand for."""
    lines = [
        Line2D([], [], color=colour, ls=dashes, linewidth=0.8, marker="o", markersize=3.5, label=label)
        for (colour, dashes, _), label in zip(_LOOKS.values(), ("softmax", "linear"), strict=True)
    ]
    return [*lines, Line2D([], [], linestyle="none", label="(lines: 2 / curvature at 0)")]


def _curvatures(axes: Axes, one: xarray.Dataset) -> None:
    scale = one["scale"].values

    def curve(values: xarray.Dataset, name: str, **look: str | float) -> None:
        parts = (10 ** values[part].values / scale**_POWER for part in (name, f"{name}_low", f"{name}_high"))
        page.band(axes, scale, *parts, **look)

    curve(one, "bound", color="black", linewidth=0.8, label="softmax, derived bound")
    for name, (colour, dashes, _) in _LOOKS.items():
        curve(one.sel(attention=name), "curvature", color=colour, linestyle=dashes, label=f"{name}, largest found")
    curve(one.sel(attention="softmax"), "at_zero", color=palette.SKY, linestyle=":", label="softmax, at $W = 0$")
    axes.set_yscale("log")
    axes.set_ylabel(f"second derivative $/\\,s^{_POWER}$")


def _steps(axes: Axes, one: xarray.Dataset) -> None:
    scale = one["scale"].values
    for name, (colour, dashes, aside) in _LOOKS.items():
        each = one.sel(attention=name)
        edge = 2 / 10 ** each["at_zero"].values * scale**_POWER
        axes.plot(scale, edge, color=colour, linestyle=dashes, linewidth=0.8)
        steps, beyond = each["each_step"].values * scale**_POWER, each["each_beyond"].values.astype(bool)
        _points(axes, scale * aside, steps, beyond, one["forked"].values, colour)
    axes.set_yscale("log")
    axes.set_ylabel(f"largest step that descends $\\times\\,s^{_POWER}$")


def _ratios(axes: Axes, one: xarray.Dataset) -> None:
    scale = one["scale"].values
    parts = (10 ** one[part].values for part in ("smoother", "smoother_low", "smoother_high"))
    page.band(axes, scale, *parts, color=palette.AMBER, marker="D", markersize=3, label="curvature, linear / softmax")
    softmax, linear = (one.sel(attention=name) for name in _LOOKS)
    ratio = softmax["each_step"].values / linear["each_step"].values
    beyond = (softmax["each_beyond"].values | linear["each_beyond"].values).astype(bool)
    _points(axes, scale, ratio, beyond, one["forked"].values, palette.ROSE)
    axes.axhline(1.0, color="black", linewidth=0.7)
    axes.axhline(float(one.attrs["words"]) ** -2.0, color="black", linewidth=0.7, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylabel("ratio; above 1: softmax is more stable")


def _points(axes: Axes, x: np.ndarray, y: np.ndarray, beyond: np.ndarray, forked: np.ndarray, colour: str) -> None:
    """Draw a point a text and scale: a triangle where a step is beyond all tried, hollow where the text forks."""
    x, hollow = np.broadcast_to(x, y.shape), np.broadcast_to(forked[:, None], y.shape)
    for marker, of_marker in (("o", ~beyond), ("^", beyond)):
        for fill, of_fill in (("none", hollow), (colour, ~hollow)):
            chosen = of_marker & of_fill
            axes.plot(
                x[chosen],
                y[chosen],
                marker,
                color=colour,
                markerfacecolor=fill,
                markersize=3.5,
                markeredgewidth=0.6,
                linestyle="none",
                alpha=0.7,
            )
