"""Whether shares of seeds rise or fall with a size, judged by intervals that do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray

from jaxattn.study.claims import Criterion, Number, above, below
from jaxattn.study.estimates import number

# Two intervals are disjoint if the gap between them exceeds rounding.
MORE = 1e-9


class Point(NamedTuple):
    """A run and a share of its seeds."""

    run: str
    share: Number


Curve = Sequence[Point]


def points(summary: xarray.Dataset, name: str) -> list[Point]:
    """Return an estimated share along the axis `run`."""
    return [Point(str(run), number(summary, name, run=run)) for run in summary["run"].values]


@dataclass(frozen=True)
class Trend:
    """How shares change along curves, each from the smallest size to the largest, in the direction asked for."""

    # From end to end of a curve, by `Number.apart_from`; smallest over curves.
    change: Number
    # The pairs of points that were compared; of these, with disjoint intervals in this direction, and in the other.
    pairs: int
    apart: int
    against: tuple[str, ...]
    # The last run of every curve whose ends are not disjoint in this direction.
    level: tuple[str, ...]

    @property
    def undecided(self) -> str:
        """Why the curves cannot decide whether there is such a trend, or nothing if they can."""
        if not self.pairs:
            return "No curve has two points."
        return "" if self.apart or self.against else "No two compared points have disjoint intervals."

    def criteria(self, what: str, points: str) -> tuple[Criterion, Criterion]:
        """Ask for disjoint ends on every curve, and for no pair of points that differ in the other direction."""
        against = Number.exact(len(self.against))
        return (
            above(f"{what}, smallest over curves,", self.change, MORE),
            below(f"pairs of {points} whose 95 % intervals are disjoint in the other direction", against, 0),
        )

    def remark(self, points: str) -> str:
        """Say how many pairs of points differ, in which direction, and on which curves the ends overlap."""
        against = f" ({'; '.join(self.against)})" if self.against else ""
        level = f" The ends overlap on the curves to {'; '.join(self.level)}." if self.level else ""
        return (
            f"{self.apart} of {self.pairs} pairs of {points} have disjoint 95 % intervals in this direction, "
            f"{len(self.against)} in the other{against}.{level}"
        )


def trend(
    curves: Sequence[Curve], up: bool, pairs: Callable[[Curve], Iterable[tuple[Point, Point]]] = itertools.pairwise
) -> Trend:
    """Return how shares rise, or else fall, along curves; pairs of points are compared, the smaller size first."""

    def change(a: Point, b: Point) -> Number:
        return b.share.apart_from(a.share) if up else a.share.apart_from(b.share)

    ends = {curve[-1].run: change(curve[0], curve[-1]) for curve in curves}
    compared = [(f"{a.run} to {b.run}", change(a, b)) for curve in curves for a, b in pairs(curve)]
    return Trend(
        change=Number(*map(min, zip(*ends.values(), strict=True))) if ends else Number.exact(np.nan),
        pairs=len(compared),
        apart=sum(difference.low > 0 for _, difference in compared),
        against=tuple(name for name, difference in compared if difference.high < 0),
        level=tuple(run for run, end in ends.items() if not end.low > 0),
    )
