"""Texts on a page of a fixed width: broken to the room they have, none too small, none cut off by the edge."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.text import Text

# Between two blanks; a formula is one word, whatever blanks it has.
_WORD = re.compile(r"(?:\$[^$]*\$|[^\s$])+")
# Between a text that spans the page and the edges, in points.
_EDGE = 4.0


class Drawn(NamedTuple):
    """A line of text as it is written, the size of its letters in points, and whether an edge cuts it off."""

    text: str
    size: float
    cut: bool


def fit(figure: Figure) -> None:
    """Lay a figure out, once for all files, with long texts broken to the width of their panel, or of the page."""
    engine = figure.get_layout_engine()
    if engine is None:
        return
    # Texts that are not broken yet may leave their panels no room; whether there is room shows in the second layout.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        engine.execute(figure)
    _break(figure)
    engine.execute(figure)
    # With an engine left in place Matplotlib would lay the figure out again for each file.
    figure.set_layout_engine(None)


def drawn_texts(figure: Figure) -> list[Drawn]:
    """Return every line of text that a figure shows, ticks, keys and formulas among them, empty ones not."""
    fit(figure)
    renderer = _Recorder(*figure.bbox.size, figure.dpi)
    figure.draw(renderer)
    return renderer.lines


class _Recorder(RendererAgg):
    """Keeps what is drawn as text: a walk over artists would also find ticks outside the limits and hidden panels."""

    def __init__(self, width: float, height: float, dpi: float) -> None:
        super().__init__(width, height, dpi)
        self.lines: list[Drawn] = []

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False, mtext: Any = None
    ) -> None:
        if s.strip():
            width, height, descent = self.get_text_width_height_descent(s, prop, ismath)
            corners = np.array([[0, descent], [width, descent], [width, descent - height], [0, descent - height]])
            c, sine = np.cos(np.radians(angle)), np.sin(np.radians(angle))
            # From the top left corner of the figure, to the right and down.
            places = np.array([x, y]) + corners @ np.array([[c, -sine], [sine, c]])
            is_cut = bool((places < -1).any() or (places > np.array([self.width, self.height]) + 1).any())
            self.lines.append(Drawn(s, float(prop.get_size_in_points()), is_cut))
        super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)


def _break(figure: Figure) -> None:
    renderer = FigureCanvasAgg(figure).get_renderer()
    page = figure.bbox.width - 2 * _EDGE * figure.dpi / 72
    rooms = [(text, page) for text in figure.texts]
    for axes in figure.axes:
        width, height = axes.bbox.width, axes.bbox.height
        rooms += [(axes.title, width), (axes.xaxis.label, width), (axes.yaxis.label, height)]
    for text, room in rooms:
        lines = [line for old in text.get_text().split("\n") for line in _lines(old, text, room, renderer)]
        text.set_text("\n".join(lines))


def _lines(line: str, text: Text, room: float, renderer: RendererAgg) -> list[str]:
    """Break a line of a text at blanks so that each part fits, a single word that does not fit apart."""
    font = text.get_fontproperties()

    def long(words: str) -> float:
        return renderer.get_text_width_height_descent(words, font, is_math_text(words))[0]

    if not line.strip() or long(line) <= room:
        return [line]
    words, blank = _WORD.findall(line), long("a a") - long("aa")
    widths = np.array([long(word) for word in words])
    # Into as few lines as there must be, as even as they can be.
    number = len(_filled(widths, blank, room))
    low, high = float(widths.max()), room
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if len(_filled(widths, blank, middle)) <= number else (middle, high)
    ends = [0, *np.cumsum(_filled(widths, blank, max(high, float(widths.max()))))]
    return [" ".join(words[start:end]) for start, end in pairwise(ends)]


def _filled(widths: np.ndarray, blank: float, room: float) -> list[int]:
    numbers, used = [0], 0.0
    for width in widths:
        if numbers[-1] and used + blank + width > room:
            numbers.append(0)
            used = 0.0
        used += width + (blank if numbers[-1] else 0.0)
        numbers[-1] += 1
    return numbers
