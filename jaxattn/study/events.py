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
    """A stage begins, of the run with this number from 1, or of all runs if it is 0."""

    stage: Stage
    run: int = 0


@dataclass(frozen=True)
class Trained:
    """More seeds of a run are in its record, with their steps and seconds if they were trained just now."""

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
