"""Whether shares of seeds rise or fall with a size, judged by intervals that do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxattn.study.claims import Criterion, Number, above, below

# Two intervals are disjoint if the gap between them exceeds rounding.
_MORE = 1e-9


class Point(NamedTuple):
    """A run and a share of its seeds."""

    run: str
    share: Number


Curve = Sequence[Point]
Pairs = Callable[[Curve], Iterable[tuple[Point, Point]]]


@dataclass(frozen=True)
class Trend:
    """How shares change along curves, each from the smallest size to the largest.

    Attributes:
        change: from end to end of a curve in the direction asked for, smallest over curves. Its interval goes from the
            nearest to the farthest bounds of the two shares, so it is above 0 if these are disjoint.
        pairs: number of pairs of points that were compared.
        apart: of these, with disjoint intervals in the direction asked for.
        against: of these, with disjoint intervals in the other direction: "run to run".
        level: last run of every curve whose ends are not disjoint in the direction asked for.
    """

    change: Number
    pairs: int
    apart: int
    against: tuple[str, ...]
    level: tuple[str, ...]

    @property
    def undecided(self) -> str:
        """Why the curves cannot decide whether there is such a trend, or nothing if they can."""
        if not self.pairs:
            return "No curve has two points."
        return "" if self.apart or self.against else "No two compared points have disjoint intervals."

    def criteria(self, what: str, points: str) -> tuple[Criterion, Criterion]:
        """Ask for disjoint ends on every curve, and for no pair of points that differ in the other direction.

        Args:
            what: the change from end to end, in words.
            points: the points that are compared, in words.
        """
        against = Number.exact(len(self.against))
        return (
            above(f"{what}, smallest over curves,", self.change, _MORE),
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


def trend(curves: Iterable[Curve], up: bool, pairs: Pairs = itertools.pairwise) -> Trend:
    """Return how shares change along curves.

    Args:
        curves: each of at least two points, from the smallest size to the largest.
        up: whether they should rise; otherwise fall.
        pairs: the pairs of points of a curve to compare, the smaller size first; neighbours by default.
    """

    def change(a: Point, b: Point) -> Number:
        lower, upper = (a.share, b.share) if up else (b.share, a.share)
        return Number(upper.mean - lower.mean, upper.low - lower.high, upper.high - lower.low)

    curves = list(curves)
    ends = [change(curve[0], curve[-1]) for curve in curves]
    compared = [(f"{a.run} to {b.run}", change(a, b)) for curve in curves for a, b in pairs(curve)]
    least = Number(*(min(parts) for parts in zip(*ends, strict=True))) if ends else Number.exact(np.nan)
    return Trend(
        change=least,
        pairs=len(compared),
        apart=sum(one.low > 0 for _, one in compared),
        against=tuple(said for said, one in compared if one.high < 0),
        level=tuple(curve[-1].run for curve, end in zip(curves, ends, strict=True) if not end.low > 0),
    )
