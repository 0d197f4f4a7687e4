"""Texts written beside points of a panel; at the ends of curves, in place of a key, apart from each other."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from jaxattn.study.style.page import SMALLEST

# Between a point and its label, in points.
_OFF = 5.0


class End(NamedTuple):
    """A label in the colour of its curve, and the point beside which it stands."""

    label: str
    x: float
    y: float
    colour: str


def beside_ends(
    axes: Axes, ends: list[End], side: Literal["left", "right"] = "right", gap: float = 0.075, **look: Any
) -> None:
    """Write labels beside points, moved up or down where they would overlap; points at infinity get none.

    The panel's scales and limits must be final; the gap is the least distance of two labels as a share of its height.
    """
    # Limits that follow from what is drawn are found when they are asked for.
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    places = [axes.transAxes.inverted().transform(axes.transData.transform((one.x, one.y)))[1] for one in ends]
    here = [(one, float(place)) for one, place in zip(ends, places, strict=True) if np.isfinite(place)]
    heights = apart(np.array([place for _, place in here]), gap)
    sign, align = (1, "left") if side == "right" else (-1, "right")
    for (one, _), height in zip(here, heights, strict=True):
        where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": align, "va": "center"}
        own = {"color": one.colour, "fontsize": SMALLEST, "annotation_clip": False}
        axes.annotate(one.label, (one.x, float(height)), (sign * _OFF, 0), **where, **(own | look))


def apart(places: Float[np.ndarray, " labels"], gap: float) -> Float[np.ndarray, " labels"]:
    """Return the places nearest to these, in the same order, of which no two are closer than `gap`."""
    order = np.argsort(places, kind="stable")
    # Without the gaps the places need only increase: runs that decrease are replaced by their means.
    blocks: list[list[float]] = []
    for value in places[order] - gap * np.arange(len(places)):
        blocks.append([float(value)])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    found = np.empty(len(places))
    found[order] = [np.mean(block) for block in blocks for _ in block]
    found[order] += gap * np.arange(len(places))
    return found


def beside(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write a small text beside a point, at an offset in points; `look` is as `Axes.annotate` takes it."""
    axes.annotate(text, point, offset, textcoords="offset points", fontsize=SMALLEST, **look)
