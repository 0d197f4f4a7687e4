"""What an experiment reports while it is made: its stage, the seeds that are trained, and when it compiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """What an experiment does; the value is what is said of it."""

    STARTING = "starting"
    TRAINING = "drawing problems, training"
    MEASURING = "solving, measuring"
    JUDGING = "judging"
    DRAWING = "drawing the figure"


@dataclass(frozen=True)
class Staged:
    """A stage begins, of the whole experiment or of one of its runs.

    Attributes:
        stage: the one that begins.
        run: the number of the run, from 1; 0 where the stage is about all of them.
    """

    stage: Stage
    run: int = 0


@dataclass(frozen=True)
class Trained:
    """Some more seeds of a run are in its record.

    Attributes:
        seeds: how many more.
        steps: of descent that each has made just now; 0 if they were recorded before, or nothing descends.
        seconds: that this took, compilation included.
    """

    seeds: int
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Compiling:
    """XLA begins to compile a program, or has ended."""

    now: bool


Event = Staged | Trained | Compiling
Report = Callable[[Event], None]


def unheard(event: Event) -> None:
    """Report to nobody."""
    del event
