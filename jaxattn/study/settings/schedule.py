"""After which steps a run keeps its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Schedule = Callable[[int], tuple[int, ...]]


@dataclass(frozen=True)
class Evenly:
    """Every so many steps.

    Raises:
        ValueError: fewer than 1; called for a run of fewer steps.
    """

    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"snapshots.every: expected at least 1, found {self.every}")

    def __call__(self, steps: int) -> tuple[int, ...]:
        """Return the steps within 1..steps."""
        if self.every > steps:
            raise ValueError(f"snapshots.every: expected at most steps = {steps}, found {self.every}")
        return tuple(range(self.every, steps + 1, self.every))


@dataclass(frozen=True)
class Logarithmically:
    """So many times while the number of steps grows tenfold, rounded to whole steps; the first and the last among them.

    Raises:
        ValueError: fewer than 1.
    """

    a_decade: int

    def __post_init__(self) -> None:
        if self.a_decade < 1:
            raise ValueError(f"snapshots.a_decade: expected at least 1, found {self.a_decade}")

    def __call__(self, steps: int) -> tuple[int, ...]:
        """Return the steps within 1..steps."""
        count = int(np.ceil(np.log10(steps) * self.a_decade)) + 1
        return tuple(np.unique(np.rint(np.geomspace(1, steps, max(count, 2))).astype(int)).tolist())


def never(steps: int) -> tuple[int, ...]:
    """Keep the final weights alone: of many seeds in a large dimension the snapshots would be most of a record."""
    del steps
    return ()
