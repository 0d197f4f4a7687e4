"""A phase diagram of the verdicts of a sweep over one or two keys."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Rectangle

from jaxattn.bias.verdict import CLOSE
from jaxattn.study.points import Kind, Point
from jaxattn.study.style import page, palette

# A cell narrower than this, in inches, has no room for a number; an axis has no room for more labels than this.
_ROOM, _LABELS = 0.4, 12


def diagram(points: Sequence[Point]) -> Figure:
    """Draw the verdicts of a sweep over one key, or over two: the first one to the right, the second one upwards."""
    keys, kinds = list(points[0].setting), [point.kind for point in points]
    values = [_ordered([point.setting[key] for point in points]) for key in keys]
    right, upwards = len(values[0]), len(values[1]) if len(keys) > 1 else 1
    with page.style():
        figure = page.full(max(2.0, min(5.5, 1.4 + 0.35 * upwards)))
        body = page.body(figure)
        axes = body.subplots()
        has_numbers = 0.6 * page.PAGE / right > _ROOM
        for point, kind in zip(points, kinds, strict=True):
            x, y, *_ = *(known.index(point.setting[key]) for key, known in zip(keys, values, strict=True)), 0
            for patch in _patches(kind, x - 0.5, y - 0.5):
                axes.add_patch(patch)
            if has_numbers and not point.stopped and point.best and point.best.limit:
                # Nothing is rounded up to 1.
                text = f"{min(point.best.limit[0], 0.999):.3f}".replace("0.", ".", 1)
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                axes.text(x, y, text, ha="center", va="center", fontsize=page.SMALLEST, bbox=box)
        axes.set(xlim=(-0.5, right - 0.5), ylim=(-0.5, upwards - 0.5))
        axes.grid(visible=False)
        axes.set_yticks([])
        for axis, key, known in zip((axes.xaxis, axes.yaxis), keys, values, strict=False):
            shown = range(0, len(known), -(-len(known) // _LABELS))
            axis.set_ticks(list(shown), [known[place] for place in shown])
            axis.set_label_text(key)
        # What is decided first.
        counted = sorted(Counter(kinds).most_common(), key=lambda one: not one[0].decided)
        handles: list[Any] = [tuple(_patches(kind, 0, 0)) for kind, _ in counted]
        labels = [textwrap.fill(kind.label, 24) for kind, _ in counted]
        joined: dict[Any, Any] = {tuple: HandlerTuple(ndivide=None, pad=0)}
        body.legend(handles, labels, handler_map=joined, loc="outside right upper")
        (first, most), *others = [(kind.label, count) for kind, count in counted]
        found = [f"{first} at {most} of {len(points)} settings", *(f"{label} at {count}" for label, count in others)]
        figure.suptitle(f"verdict: {'; '.join(found)}")
        seeds = page.span((point.ranking.counts["kept"] for point in points if point.ranking), unit=" seeds")
        what = "number: the limit of the margin ratio in the best norm, its median over seeds; " if has_numbers else ""
        page.note(figure, f"{what}a norm is named only if its limit exceeds {CLOSE:g}; {seeds} per setting")
    return figure


def _ordered(given: Sequence[str]) -> list[str]:
    """Return each value of a key once: numbers by size, names in the order in which they are given."""
    values = list(dict.fromkeys(given))
    with contextlib.suppress(ValueError):
        values.sort(key=float)
    return values


def _patches(kind: Kind, left: float, below: float) -> list[Rectangle]:
    """Return the coloured parts of a cell; norms that cannot be told apart share it."""
    # A norm without a colour of its own has the same in each diagram.
    others = palette.OTHERS
    colours = [palette.COLOURS.get(norm) or others[sum(map(ord, norm)) % len(others)] for norm in kind.norms]
    colours = colours or ["white" if kind.decided else palette.EXCLUDED]
    width = 1 / len(colours)
    # A hatch has the colour of the edge.
    edge = palette.GUIDE if colours == ["white"] else "white"
    hatch = None if kind.decided and kind.has_direction else "////" if kind.has_direction else "...."
    look: dict[str, Any] = {"edgecolor": edge, "hatch": hatch, "linewidth": 0.8}
    return [Rectangle((left + k * width, below), width, 1, facecolor=one, **look) for k, one in enumerate(colours)]
