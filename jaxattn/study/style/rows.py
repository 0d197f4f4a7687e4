"""Bars of shares in rows, one row per run, beside a small table that tells what each run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from jaxattn.study.style import palette
from jaxattn.study.style.labels import beside

# Of the line of headings above the first row, in rows, and of the key above it, in points.
_HEAD, _KEY = 0.9, 16


class Column(NamedTuple):
    """A column of the table: its head, and its cells from above, of which an empty one repeats the cell above it.

    The place is that of its left edge in points, from the bars' left edge if negative, else from their right edge.
    """

    head: str
    cells: Sequence[str]
    place: float


class Part(NamedTuple):
    """A part of every bar, with its share of each row from above."""

    label: str
    colour: str
    shares: ArrayLike


def grouped(cells: Sequence[str]) -> list[str]:
    """Return the cells of a column in which each value is written once, in its first row."""
    return ["" if cell in cells[:row] else cell for row, cell in enumerate(cells)]


def draw_rows(axes: Axes, columns: Sequence[Column], parts: Sequence[Part], **labels: str) -> None:
    """Draw the bars from above, between the columns of the table, with a line above each cell of the first column."""
    first = columns[0].cells
    rows = np.arange(len(first))
    start = np.zeros(len(first))
    for part in parts:
        share = np.asarray(part.shares, float)
        axes.barh(rows, share, left=start, color=part.colour, label=part.label, height=0.7)
        start = start + share
    for column in columns:
        _write(axes, column.place, -_HEAD - 0.1, column.head, palette.NOTE)
        for row, text in enumerate(column.cells):
            _write(axes, column.place, row, text, palette.INK)
    left = min(column.place for column in columns)
    for row in rows[1:]:
        if first[row]:
            _line(axes, row - 0.5, left)
    axes.set(xlim=(0, 1), ylim=(len(first) - 0.4, -_HEAD - 0.6), yticks=[])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_title(labels.pop("title", ""), pad=_KEY)
    axes.set(**labels)
    if parts and len(first):
        spacing = {"borderaxespad": 0.2, "columnspacing": 1.4, "handlelength": 1.2}
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(parts), **spacing)


def _write(axes: Axes, place: float, row: float, text: str, colour: str) -> None:
    look = {"xycoords": axes.get_yaxis_transform(), "va": "center", "ha": "left", "color": colour}
    beside(axes, text, (float(place >= 0), row), (place, 0), **look)


def _line(axes: Axes, row: float, left: float) -> None:
    line = {"arrowstyle": "-", "color": palette.EXCLUDED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
    beside(axes, "", (0, row), (left, 0), xycoords=axes.get_yaxis_transform(), arrowprops=line)
    axes.axhline(row, color=palette.EXCLUDED, linewidth=0.6)
