"""Whether shares of seeds rise or fall along a size, judged by intervals that are apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxattn.study.claims import Criterion, Number, above, below

# Two intervals are apart if there is more than rounding between them.
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
        change: from end to end of a curve in the sense that is asked for, the least of all curves. Its interval is that
            between the nearest and the farthest bounds of the two shares, so it lies above 0 if these are apart.
        pairs: number of pairs of points that were compared.
        apart: of these, with intervals apart in the sense that is asked for.
        against: of these, with intervals apart in the other sense: "run to run".
        level: last run of every curve whose ends are not apart in the sense that is asked for.
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
        return "" if self.apart or self.against else "No two points that are compared have intervals apart."

    def criteria(self, what: str, points: str) -> tuple[Criterion, Criterion]:
        """Ask for ends that are apart on every curve, and for no pair of points apart in the other sense.

        Args:
            what: changes from end to end, in words.
            points: in words, which are compared.
        """
        against = Number.exact(len(self.against))
        return (
            above(f"{what}, least of all curves,", self.change, _MORE),
            below(f"pairs of {points} with 95 % intervals apart in the other sense", against, 0),
        )

    def remark(self, points: str) -> str:
        """Say how many pairs of points are apart, in which sense, and on which curves the ends overlap."""
        against = f" ({'; '.join(self.against)})" if self.against else ""
        level = f" Not apart in this sense are the ends of the curves to {'; '.join(self.level)}." if self.level else ""
        return (
            f"{self.apart} of {self.pairs} pairs of {points} have 95 % intervals apart in this sense, "
            f"{len(self.against)} in the other{against}.{level}"
        )


def trend(curves: Iterable[Curve], up: bool, pairs: Pairs = itertools.pairwise) -> Trend:
    """Return how shares change along curves.

    Args:
        curves: each of at least two points, from the smallest size to the largest.
        up: whether they are to rise; else to fall.
        pairs: of the points of a curve that are compared, the smaller size first; neighbours if not given.
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
