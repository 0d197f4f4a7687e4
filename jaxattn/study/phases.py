"""The verdicts of a sweep of `jaxattn which`: a table, a CSV file, and a phase diagram of one or two settings."""

from __future__ import annotations

import contextlib
import csv
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Rectangle

from jaxattn import bias
from jaxattn.bias.verdict import CLOSE
from jaxattn.study.measuring.stopped import Stopped
from jaxattn.study.style import page, palette

# A cell narrower than this, in inches, has no room for a number; an axis has no room for more labels than this.
_ROOM, _LABELS = 0.4, 12


class Best(NamedTuple):
    """The norm that comes nearest: its name, its limit with the ends of the interval, and how many seeds obey it.

    The limit is None if it is not known, as for weights that no longer grow.
    """

    norm: str
    limit: tuple[float, ...] | None
    obey: int


@dataclass(frozen=True)
class Point:
    """One setting of a sweep, and what was found there.

    Attributes:
        setting: the values of the keys that vary, as they are written.
        record: the path of its record.
        ranking: None if its weights cannot be ranked.
        stopped: where the weights stop; None if they grow.
        reason: why the weights cannot be ranked.
    """

    setting: Mapping[str, str]
    record: Path
    ranking: bias.Ranking | None = None
    stopped: Stopped | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in one line: on where the weights stop, if that is known, else on their direction."""
        if self.ranking is None:
            return f"not ranked: {self.reason}"
        return self.stopped.text if self.stopped and self.stopped.norms else str(self.ranking.verdict)

    @property
    def best(self) -> Best | None:
        """The norm with the largest limit, or the largest ratio if limits are not known; None if nothing is ranked."""
        if (ranking := self.ranking) is None:
            return None
        k = int(np.argmax(ranking.ratio.mean[:, -1] if ranking.limit is None else ranking.limit.mean))
        limit = () if ranking.limit is None else tuple(float(part[k]) for part in ranking.limit[:3])
        is_known = bool(limit) and bool(np.isfinite(limit).all())
        return Best(ranking.norms[k], limit if is_known else None, int((ranking.obeys[:, k] == 1).sum()))


class Table:
    """The verdicts of a sweep for a terminal, a row a point: the widths are known before the first point is.

    Args:
        settings: the setting of each point.
        norms: the names of the norms that are ranked.
    """

    def __init__(self, settings: Sequence[Mapping[str, str]], norms: Sequence[str]):
        self._widths = {key: max(len(key), *(len(one[key]) for one in settings)) for key in settings[0]}
        self._widths |= {"best norm": max(map(len, ("best norm", *norms))), "limit": 23, "obey": 10}

    def heading(self) -> str:
        """Return the first line."""
        return self._line({key: key for key in self._widths}, "verdict")

    def row(self, point: Point) -> str:
        """Return the line of a point."""
        cells = dict.fromkeys(self._widths, "-") | dict(point.setting)
        if point.ranking is not None and (best := point.best):
            cells |= {"best norm": best.norm, "obey": f"{best.obey} of {len(point.ranking.seeds)}"}
            if best.limit:
                cells["limit"] = "{:.4f} [{:.4f}, {:.4f}]".format(*best.limit)
        return self._line(cells, point.verdict)

    def _line(self, cells: Mapping[str, str], last: str) -> str:
        return "  ".join([*(f"{cells[key]:{width}}" for key, width in self._widths.items()), last])


def write(points: Sequence[Point], file: Path) -> None:
    """Write the verdicts of a sweep as CSV, a line a point; cells are empty where something is not known.

    Raises:
        OSError: the file cannot be written.
    """
    limit = ("limit", "limit_low", "limit_high")
    columns = [*points[0].setting, "verdict", "decided", "best_norm", *limit, "obey", "kept", "attempted", "record"]
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        for point in points:
            row = {**point.setting, "verdict": point.verdict, "decided": _kind(point).decided, "record": point.record}
            if point.ranking is not None and (best := point.best):
                row |= {"best_norm": best.norm, "obey": best.obey, **dict(zip(limit, best.limit or (), strict=False))}
                row |= {name: point.ranking.counts[name] for name in ("kept", "attempted")}
            writer.writerow(row)


class _Kind(NamedTuple):
    """What a verdict says, as the cells of a diagram show it: norms by their colours, all else by hatches."""

    label: str
    norms: tuple[str, ...] = ()
    decided: bool = False
    hatch: str = ""


def _kind(point: Point) -> _Kind:
    if point.ranking is None:
        return _Kind("not ranked", hatch="xxxx")
    if point.stopped and (norms := point.stopped.norms):
        return _Kind(f"no direction: stops on the ball of {' and '.join(norms)}", norms, True, "....")
    norms, decided, _ = point.ranking.verdict
    if decided:
        return _Kind(" and ".join(norms) or "none of these", norms, True)
    return _Kind(f"{norms[0]}, or a norm near it" if norms else "not decided", norms, hatch="////")


def diagram(points: Sequence[Point]) -> Figure:
    """Draw the verdicts of a sweep over one key, or over two: the first one to the right, the second one upwards.

    Args:
        points: all combinations of the values of these keys.
    """
    keys, kinds = list(points[0].setting), list(map(_kind, points))
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
        figure.suptitle(_finding([(kind.label, count) for kind, count in counted]))
        seeds = page.span((point.ranking.counts["kept"] for point in points if point.ranking), unit=" seeds")
        what = "number: the limit of the margin ratio in the best norm, its median over seeds; " if has_numbers else ""
        page.note(figure, f"{what}a norm is named only if its limit exceeds {CLOSE:g}; {seeds} per setting")
    return figure


def _finding(counted: Sequence[tuple[str, int]]) -> str:
    """Return how many settings have which verdict, in one sentence."""
    (first, most), *others = counted
    total = sum(count for _, count in counted)
    return "verdict: " + "; ".join(
        [f"{first} at {most} of {total} settings", *(f"{label} at {count}" for label, count in others)]
    )


def _ordered(given: Sequence[str]) -> list[str]:
    """Return each value of a key once: numbers by size, names in the order in which they are given."""
    values = list(dict.fromkeys(given))
    with contextlib.suppress(ValueError):
        values.sort(key=float)
    return values


def _patches(kind: _Kind, left: float, below: float) -> list[Rectangle]:
    """Return the coloured parts of a cell; norms that cannot be told apart share it."""
    colours = [palette.COLOURS.get(norm) or _other(norm) for norm in kind.norms]
    colours = colours or ["white" if kind.decided else palette.EXCLUDED]
    width = 1 / len(colours)
    # A hatch has the colour of the edge.
    edge = palette.GUIDE if colours == ["white"] else "white"
    look: dict[str, Any] = {"edgecolor": edge, "hatch": kind.hatch, "linewidth": 0.8}
    return [Rectangle((left + k * width, below), width, 1, facecolor=one, **look) for k, one in enumerate(colours)]


def _other(norm: str) -> str:
    # A name has the same colour in each diagram.
    return palette.OTHERS[sum(map(ord, norm)) % len(palette.OTHERS)]
