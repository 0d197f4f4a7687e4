"""Ranges of numbers in words, for titles and notes; and texts beside points of a panel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes

from jaxattn.study.style import page

__all__ = ["beside", "span"]


def span(values: Iterable[float], form: str = "g", unit: str = "") -> str:
    """Return the smallest and the largest of some numbers in words, once if they are written alike.

    Args:
        values: the numbers; "-" is returned if there are none.
        form: how a number is written, as `format` takes it.
        unit: written behind the last number.

    Example:
        >>> span([0.991, 0.998], ".2f"), span([16, 16]), span([0.88, 1.0], ".0%")
        ('0.99 to 1.00', '16', '88% to 100%')
    """
    numbers = list(values)
    if not numbers:
        return "-"
    ends = dict.fromkeys(format(end, form) for end in (min(numbers), max(numbers)))
    return f"{' to '.join(ends)}{unit}"


def beside(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write a small text beside a point.

    Args:
        axes: where to draw.
        text: in a line.
        point: in the coordinates of the data, or in those given as `xycoords`.
        offset: of the text from the point, in points.
        look: of the text, as `Axes.annotate` takes it.
    """
    axes.annotate(text, point, offset, textcoords="offset points", fontsize=page.SMALLEST, **look)
