"""Show the progress of experiments: a live display on a terminal, else one line per event."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxattn.study.events import Compiling, Event, Report, Stage, Staged, Trained

_RATE = 4
# Lines of a terminal used for headings, totals, and the count of rows not shown.
_OTHERS = 5
_HEADINGS = ("experiment", "stage", "seeds", "steps/s", "time", "left")


@dataclass
class _Row:
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
    """The state of experiments made, running and waiting, and the time left; shown live, by default on a terminal."""

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
        if self.shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        """Show a phase of work before the experiments begin."""
        self._phase = (text, time.monotonic())
        if not self.shown:
            self.say(f"jaxattn: {text}")

    def expect(self, seconds: Mapping[str, float | None], processes: int) -> None:
        """Show experiments from now on, by their previous durations, and how many processes make them."""
        self._seconds, self._processes = dict(seconds), processes
        self._waiting = set(seconds)
        self._phase = None

    def begun(self, name: str, runs: int = 1, seeds: int = 0) -> None:
        """Note that an experiment has begun, with its numbers of runs and seeds."""
        self._waiting.discard(name)
        self._running[name] = _Row(time.monotonic(), runs, seeds)
        if not self.shown:
            seconds = self._seconds[name]
            self.say(f"{name}: begun" + ("" if seconds is None else f", {duration(seconds)} when it was made before"))

    def note(self, name: str, event: Event) -> None:
        """Note a report of an experiment; ignored if the experiment is finished or has not begun."""
        if row := self._running.get(name):
            row.hear(event)

    def made(self, name: str) -> None:
        """Note that an experiment is finished."""
        del self._running[name]

    def say(self, line: str) -> None:
        """Print a permanent line above the display."""
        self._console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the display for the running experiments, column by column."""
        rows = []
        for name, row in list(self._running.items()):
            seeds = f"{row.trained:,}/{row.seeds:,}" if row.seeds else ""
            left = "" if (seconds := self._left(name, row)) is None else duration(seconds)
            rows.append((name, row.doing(), seeds, row.rate(), duration(time.monotonic() - row.began), left))
        return rows

    def elapsed(self) -> float:
        """Return the seconds since the board was made."""
        return time.monotonic() - self._since

    def totals(self) -> str:
        """Return the line below the experiments: the numbers in each state, the elapsed time, and the time left."""
        if self._phase:
            text, since = self._phase
            return f"{text}, {duration(time.monotonic() - since)}"
        running, waiting = dict(self._running), set(self._waiting)
        made = len(self._seconds) - len(running) - len(waiting)
        parts = [f"{made} made, {len(running)} running, {len(waiting)} waiting", duration(self.elapsed())]
        left = [self._left(name, row) for name, row in running.items()] + [self._seconds[name] for name in waiting]
        known = [seconds for seconds in left if seconds is not None]
        if known and len(known) == len(left):
            parts.append(f"about {duration(max(max(known), sum(known) / self._processes))} left")
        return "; ".join(parts)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        if rows := self.rows():
            table = Table(box=None, pad_edge=False, header_style="dim")
            for number, heading in enumerate(_HEADINGS):
                table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
            most = max(1, self._console.height - _OTHERS)
            for row in rows[:most]:
                table.add_row(*map(Text, row))
            parts.append(table)
            if len(rows) > most:
                parts.append(Text(f"and {len(rows) - most} more", style="dim"))
        self._spinner.update(text=Text(self.totals()))
        return Group(*parts, self._spinner)

    def _left(self, name: str, row: _Row) -> float | None:
        """Return the seconds left for an experiment, from its previous duration or else from the seeds trained."""
        known, elapsed = self._seconds.get(name), time.monotonic() - row.began
        if known is not None:
            return max(0.0, known - elapsed)
        return elapsed * (row.seeds / row.trained - 1) if 0 < row.trained < row.seeds else None


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show a message on the terminal's error output while something is done; standard output is not touched."""
    console = Console(stderr=True)
    with console.status(Text(text)) if is_terminal(sys.stderr) else nullcontext():
        yield


@contextmanager
def bar(name: str, seeds: int) -> Iterator[Report]:
    """Show a progress bar of a run's seeds on the terminal's error output; yield the function that updates it."""
    # The bars of several processes, which a launcher starts, would overwrite each other.
    hidden = multiprocessing.parent_process() is not None or not is_terminal(sys.stderr)
    columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), "seeds")
    times = (TimeElapsedColumn(), TimeRemainingColumn(), "{task.fields[rate]}")
    with Progress(*columns, *times, console=Console(stderr=True), disable=hidden) as progress:
        task = progress.add_task(name, total=seeds, rate="")
        row = _Row(time.monotonic(), 1, seeds)

        def report(event: Event) -> None:
            row.hear(event)
            if isinstance(event, Trained):
                rate = f"{row.rate()} steps/s" if row.rate() else ""
                progress.update(task, completed=row.trained, rate=rate)

        yield report


def is_terminal(output: TextIO) -> bool:
    """Return whether an output can show a live display."""
    return output.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def duration(seconds: float) -> str:
    """Return a duration in readable form, such as "7 s" or "3:10 min"."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"


def _short(number: float) -> str:
    """Return a large number with three digits, such as "4.62 M" or "870"."""
    for power, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= power:
            return f"{number / power:.3g}{letter}"
    return f"{number:.3g}"
