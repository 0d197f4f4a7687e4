"""What one sees while experiments are made: a display that moves on a terminal, else one line an event."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxattn.study.events import Compiling, Event, Report, Stage, Staged, Trained

# How often a second the display is drawn.
_RATE = 4
# Lines of a terminal that no experiment takes: headings, totals, and those that are not shown.
_OTHERS = 5
_HEADINGS = ("experiment", "stage", "seeds", "steps/s", "time", "left")


@dataclass
class _Row:
    """How an experiment stands that is being made."""

    began: float
    runs: int
    seeds: int
    stage: Staged = field(default_factory=lambda: Staged(Stage.STARTING))
    compiling: bool = False
    trained: int = 0
    steps: int = 0
    seconds: float = 0.0

    def hear(self, event: Event) -> None:
        if isinstance(event, Staged):
            self.stage = event
        elif isinstance(event, Compiling):
            self.compiling = event.now
        else:
            self.trained += event.seeds
            self.steps += event.seeds * event.steps
            self.seconds += event.seconds

    def doing(self) -> str:
        run = f" {self.stage.run}/{self.runs}" if self.stage.run and self.runs > 1 else ""
        return f"{self.stage.stage.value}{run}" + (", compiling" if self.compiling else "")

    def rate(self) -> str:
        return _short(self.steps / self.seconds) if self.steps and self.seconds else ""


class Board:
    """How many experiments are made, running and waiting, what each running one does, and how long all will take.

    Args:
        shown: whether a display moves; if None, where the output is a terminal.
    """

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = is_terminal(sys.stdout) if shown is None else shown
        self._since = time.monotonic()
        self._phase: tuple[str, float] | None = None
        self._seconds: dict[str, float | None] = {}
        self._processes = 1
        self._waiting: set[str] = set()
        self._running: dict[str, _Row] = {}
        self._console = Console(force_terminal=self.shown)
        self._live = Live(self, console=self._console, refresh_per_second=_RATE, transient=True)
        self._spinner = Spinner("dots")

    def __enter__(self) -> Board:
        """Begin to move."""
        if self.shown:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the display away, also after a mistake or an interrupt."""
        self._live.stop()

    def phase(self, text: str) -> None:
        """Say what is done before the experiments are."""
        self._phase = (text, time.monotonic())
        if not self.shown:
            self.say(f"jaxattn: {text}")

    def expect(self, seconds: Mapping[str, float | None], processes: int) -> None:
        """Show experiments from now on.

        Args:
            seconds: what each experiment to be made took earlier; None where that is not known.
            processes: that make them side by side.
        """
        self._seconds, self._processes = dict(seconds), processes
        self._waiting = set(seconds)
        self._phase = None

    def begun(self, name: str, runs: int = 1, seeds: int = 0) -> None:
        """Note that an experiment is being made from now on, and how many runs and seeds it has."""
        self._waiting.discard(name)
        self._running[name] = _Row(time.monotonic(), runs, seeds)
        if not self.shown:
            known = self._seconds[name]
            self.say(f"{name}: begun" + ("" if known is None else f", {duration(known)} when it was made before"))

    def note(self, name: str, event: Event) -> None:
        """Note what an experiment reports; nothing where it is made already, or has not begun."""
        if row := self._running.get(name):
            row.hear(event)

    def made(self, name: str) -> None:
        """Note that an experiment is made."""
        del self._running[name]

    def say(self, line: str) -> None:
        """Print a line that stays, above the display."""
        if self.shown:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def rows(self) -> list[tuple[str, ...]]:
        """Return what is shown of each running experiment, column by column."""
        now = time.monotonic()
        found = []
        for name, row in list(self._running.items()):
            seeds = f"{row.trained:,}/{row.seeds:,}" if row.seeds else ""
            left = self._left_of(name, row, now)
            said = "" if left is None else duration(left)
            found.append((name, row.doing(), seeds, row.rate(), duration(now - row.began), said))
        return found

    def elapsed(self) -> float:
        """Return the seconds since the board was made."""
        return time.monotonic() - self._since

    def totals(self) -> str:
        """Return the line below the experiments: how many stand how, since when, and how long all will take."""
        now = time.monotonic()
        if self._phase:
            text, since = self._phase
            return f"{text}, {duration(now - since)}"
        running, waiting = dict(self._running), set(self._waiting)
        made = len(self._seconds) - len(running) - len(waiting)
        parts = [f"{made} made, {len(running)} running, {len(waiting)} waiting", duration(self.elapsed())]
        if (left := self._left(running, waiting, now)) is not None:
            parts.append(f"about {duration(left)} left")
        return "; ".join(parts)

    def __rich__(self) -> RenderableType:
        """Return the display as it is now."""
        parts: list[RenderableType] = []
        if rows := self.rows():
            table = Table(box=None, pad_edge=False, header_style="dim")
            for heading in _HEADINGS:
                number = heading not in _HEADINGS[:2]
                table.add_column(heading, justify="right" if number else "left", no_wrap=True)
            room = max(1, self._console.height - _OTHERS)
            for row in rows[:room]:
                table.add_row(*map(Text, row))
            parts.append(table)
            if len(rows) > room:
                parts.append(Text(f"and {len(rows) - room} more", style="dim"))
        self._spinner.update(text=Text(self.totals()))
        return Group(*parts, self._spinner)

    def _left_of(self, name: str, row: _Row, now: float) -> float | None:
        """Return for how many seconds more, by what it took earlier, else by the seeds that are trained."""
        known = self._seconds.get(name)
        if known is not None:
            return max(0.0, known - (now - row.began))
        return (now - row.began) * (row.seeds / row.trained - 1) if 0 < row.trained < row.seeds else None

    def _left(self, running: Mapping[str, _Row], waiting: set[str], now: float) -> float | None:
        """Return for how many seconds more all will take; None if that is not known of all."""
        left = [self._left_of(name, row, now) for name, row in running.items()]
        known = [one for one in (*left, *(self._seconds[name] for name in waiting)) if one is not None]
        if not known or len(known) < len(running) + len(waiting):
            return None
        return max(max(known), sum(known) / self._processes)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show on a terminal, in the error output, that something is done; what a script reads stays as it is."""
    console = Console(stderr=True)
    with console.status(Text(text)) if is_terminal(sys.stderr) else nullcontext():
        yield


@contextmanager
def bar(name: str, seeds: int, hidden: bool) -> Iterator[Report]:
    """Show how many seeds of one run are trained, on a terminal and in the error output; yield what hears of them.

    Args:
        name: of the run.
        seeds: that it has.
        hidden: as bars of several processes would write over each other.
    """
    hidden = hidden or multiprocessing.parent_process() is not None or not is_terminal(sys.stderr)
    columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), "seeds")
    times = (TimeElapsedColumn(), TimeRemainingColumn(), "{task.fields[rate]}")
    with Progress(*columns, *times, console=Console(stderr=True), disable=hidden) as progress:
        task = progress.add_task(name, total=seeds, rate="")
        row = _Row(time.monotonic(), 1, seeds)

        def hear(event: Event) -> None:
            row.hear(event)
            if isinstance(event, Trained):
                rate = f"{row.rate()} steps/s" if row.rate() else ""
                progress.update(task, completed=row.trained, rate=rate)

        yield hear


def is_terminal(output: TextIO) -> bool:
    """Whether a display can move on an output."""
    return output.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def duration(seconds: float) -> str:
    """Return a duration as one reads it.

    Example:
        >>> duration(7.3), duration(190.0)
        ('7 s', '3:10 min')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


def _short(number: float) -> str:
    """Return a large number in three digits.

    Example:
        >>> _short(4_623_000.0), _short(870.4)
        ('4.62 M', '870')
    """
    for power, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= power:
            return f"{number / power:.3g}{letter}"
    return f"{number:.3g}"
