"""After which steps a run keeps its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Schedule = Callable[[int], tuple[int, ...]]
# A run keeps its weights at no more steps than this.
MOST = 10**6


@dataclass(frozen=True)
class Evenly:
    """Every so many steps.

    Raises:
        ValueError: fewer than 1; called for a run of fewer steps, or of so many that it would keep more than a million.
    """

    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"snapshots.every: expected at least 1, found {self.every}")

    def __call__(self, steps: int) -> tuple[int, ...]:
        """Return the steps within 1..steps."""
        if self.every > steps:
            raise ValueError(f"snapshots.every: expected at most steps = {steps}, found {self.every}")
        _check("every", self.every, steps // self.every)
        return tuple(range(self.every, steps + 1, self.every))


@dataclass(frozen=True)
class Logarithmically:
    """So many times while the number of steps grows tenfold, rounded to whole steps; the first and the last among them.

    Raises:
        ValueError: fewer than 1; called for a run of which it would keep more than a million.
    """

    a_decade: int

    def __post_init__(self) -> None:
        if self.a_decade < 1:
            raise ValueError(f"snapshots.a_decade: expected at least 1, found {self.a_decade}")

    def __call__(self, steps: int) -> tuple[int, ...]:
        """Return the steps within 1..steps."""
        count = int(np.ceil(np.log10(steps) * self.a_decade)) + 1
        _check("a_decade", self.a_decade, count)
        return tuple(np.unique(np.rint(np.geomspace(1, steps, max(count, 2))).astype(int)).tolist())


def never(steps: int) -> tuple[int, ...]:
    """Keep the final weights alone: of many seeds in a large dimension the snapshots would be most of a record."""
    del steps
    return ()


def _check(name: str, found: int, count: int) -> None:
    if count > MOST:
        raise ValueError(f"snapshots.{name}: expected at most {MOST:,} snapshots, found {count:,} by {name} = {found}")
