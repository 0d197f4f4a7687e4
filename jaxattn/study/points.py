"""The verdicts at the points of a sweep, as `jaxattn which --multirun` prints and writes them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxattn import bias
from jaxattn.study.measuring.stopped import Stopped


class Best(NamedTuple):
    """The nearest norm, its limit with the ends of the interval (None if not known), and how many seeds obey it."""

    norm: str
    limit: tuple[float, ...] | None
    obey: int


class Kind(NamedTuple):
    """What a verdict says of norms, without its numbers: a label in a few words, and the norms that are named.

    It is decided if these are all, up to norms that cannot be told apart. It has no direction if it is on the point
    where W stops.
    """

    label: str
    norms: tuple[str, ...] = ()
    decided: bool = False
    has_direction: bool = True


@dataclass(frozen=True)
class Point:
    """One setting of a sweep, by the values of its keys, and its ranking, or the reason why it has none."""

    setting: Mapping[str, str]
    record: Path
    ranking: bias.Ranking | None = None
    stopped: Stopped | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in one line: on where the weights stop, if that is known, else on their direction first."""
        if self.ranking is None:
            return f"not ranked: {self.reason}"
        if self.stopped is None:
            return str(self.ranking.verdict)
        text = self.stopped.text
        return text if self.stopped.norms else f"{self.ranking.verdict}; where W stops: {text}"

    @property
    def best(self) -> Best | None:
        """The norm with the largest limit, or the largest ratio if limits are not known; None if nothing is ranked."""
        if (ranking := self.ranking) is None:
            return None
        k = int(np.argmax(ranking.ratio.mean[:, -1] if ranking.limit is None else ranking.limit.mean))
        limit = () if ranking.limit is None else tuple(float(part[k]) for part in ranking.limit[:3])
        is_known = bool(limit) and bool(np.isfinite(limit).all())
        return Best(ranking.norms[k], limit if is_known else None, int((ranking.obeys[:, k] == 1).sum()))

    @property
    def kind(self) -> Kind:
        """What the verdict says of norms."""
        if self.ranking is None:
            return Kind("not ranked")
        if self.stopped and (norms := self.stopped.norms):
            return Kind(f"no direction: stops on the ball of {' and '.join(norms)}", norms, True, has_direction=False)
        norms, decided, _ = self.ranking.verdict
        if decided:
            return Kind(" and ".join(norms) or "none of these", norms, True)
        return Kind(f"{norms[0]}, or a norm near it" if norms else "not decided", norms)


class Table:
    """The verdicts of a sweep for a terminal, a row a point: the widths are known before the first point is."""

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
    """Write the verdicts of a sweep as CSV, a line a point; cells are empty where something is not known."""
    limit = ("limit", "limit_low", "limit_high")
    columns = [*points[0].setting, "verdict", "decided", "best_norm", *limit, "obey", "kept", "attempted", "record"]
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        for point in points:
            row = {**point.setting, "verdict": point.verdict, "decided": point.kind.decided, "record": point.record}
            if point.ranking is not None and (best := point.best):
                row |= {"best_norm": best.norm, "obey": best.obey, **dict(zip(limit, best.limit or (), strict=False))}
                row |= {name: point.ranking.counts[name] for name in ("kept", "attempted")}
            writer.writerow(row)
