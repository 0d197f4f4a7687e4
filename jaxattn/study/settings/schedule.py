"""Schedules of the steps at which a run keeps its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Schedule = Callable[[int], tuple[int, ...]]
# The largest number of steps at which a run keeps its weights.
MOST = 10**6


@dataclass(frozen=True)
class Evenly:
    """Every `every` steps, of a run with at least so many steps and at most a million snapshots."""

    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"snapshots.every: expected at least 1, found {self.every}")

    def __call__(self, steps: int) -> tuple[int, ...]:
        """Return the steps within 1..steps."""
        if self.every > steps:
            raise ValueError(
                f"snapshots.every: expected at most steps = {steps}, found {self.every}; "
                f"set snapshots.every={steps} or less, or snapshots=never"
            )
        _check("every", self.every, steps // self.every)
        return tuple(range(self.every, steps + 1, self.every))


@dataclass(frozen=True)
class Logarithmically:
    """A given number of snapshots per decade of steps, rounded to integers, including the first and the last step."""

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
    """Keep only the final weights: with many seeds in a large dimension, snapshots would be most of a record."""
    del steps
    return ()


def _check(name: str, found: int, count: int) -> None:
    if count > MOST:
        raise ValueError(f"snapshots.{name}: expected at most {MOST:,} snapshots, found {count:,} by {name} = {found}")
