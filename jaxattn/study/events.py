"""The events that an experiment reports while it is made: its stage, the seeds trained, and compilations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """The stages of an experiment; the value is the text shown."""

    STARTING = "starting"
    TRAINING = "drawing problems, training"
    MEASURING = "solving, measuring"
    JUDGING = "judging"
    DRAWING = "drawing the figure"


@dataclass(frozen=True)
class Staged:
    """A stage begins, for the whole experiment or for one of its runs.

    Attributes:
        stage: the stage.
        run: the number of the run, from 1; 0 if the stage concerns all runs.
    """

    stage: Stage
    run: int = 0


@dataclass(frozen=True)
class Trained:
    """More seeds of a run are in its record.

    Attributes:
        seeds: the number of additional seeds.
        steps: the number of steps made for each of them just now; 0 if they were recorded before, or nothing is
            trained.
        seconds: the time this took, including compilation.
    """

    seeds: int
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Compiling:
    """XLA begins or ends compiling a program."""

    now: bool


Event = Staged | Trained | Compiling
Report = Callable[[Event], None]


def unheard(event: Event) -> None:
    """Ignore an event."""
    del event
