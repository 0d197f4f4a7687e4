"""Observe a command as its user sees it: its duration, its output on the screen, and what it compiles."""

from __future__ import annotations

import itertools
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# JAX's event for every program, and within it the event for a program found in the cache.
_ASKED, _FOUND = "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_hits"
_COUNTING = Path(__file__).parent / "counting"
_LONG = 0.1  # seconds; programs that take longer are counted separately


@dataclass(frozen=True)
class Watched:
    """The observations of a command.

    Attributes:
        seconds: until it ended.
        cpu_seconds: CPU time of all its processes.
        compiled: programs compiled, in all its processes.
        found: programs found in the cache.
        long: programs compiled or loaded in more than 0.1 s.
        compiling: seconds of compiling and loading, summed over processes.
        first_output: seconds until the first output on the screen.
        longest_pause: the largest number of seconds between two outputs.
        first_figure: seconds until the first PNG file was in the folder; None if there was none.
    """

    seconds: float
    cpu_seconds: float
    compiled: int
    found: int
    long: int
    compiling: float
    first_output: float
    longest_pause: float
    first_figure: float | None


def watch(command: Sequence[str], *, root: Path, variables: Mapping[str, str], figures: Path) -> Watched:
    """Run a Python command on its own terminal, and return the observations.

    Args:
        command: the arguments after the interpreter.
        root: the folder it runs in, from which its packages are imported.
        variables: environment variables to add.
        figures: the folder where figures appear.

    Raises:
        RuntimeError: it ended with an error; the message has the end of its output.
    """
    with tempfile.TemporaryDirectory() as events:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = os.pathsep.join([str(_COUNTING), str(root)])
        environment = inherited | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"} | dict(variables)
        environment |= {"PYTHONPATH": path, "JAXATTN_EVENTS": events}
        before = _cpu_seconds()
        screen, terminal = pty.openpty()
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        try:
            times, first_figure, written = _read(screen, started, figures)
            status = process.wait()
        except BaseException:
            # Its processes form a separate group, which an interrupt of this process does not reach.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            os.close(screen)
        seconds = time.perf_counter() - started
        if status:
            raise RuntimeError(
                f"{' '.join(command)}: expected status 0, found {status}; its last words:\n{written[-2000:]}"
            )
        lines = [line.split() for file in Path(events).iterdir() for line in file.read_text().splitlines()]
    asked = [float(number) for event, number in lines if event == _ASKED]
    found = sum(event == _FOUND for event, _ in lines)
    times = [0.0, *times, seconds]
    return Watched(
        seconds=seconds,
        cpu_seconds=_cpu_seconds() - before,
        compiled=len(asked) - found,
        found=found,
        long=sum(number > _LONG for number in asked),
        compiling=sum(asked),
        first_output=times[1],
        longest_pause=max(after - before for before, after in itertools.pairwise(times)),
        first_figure=first_figure,
    )


def _read(screen: int, started: float, figures: Path) -> tuple[list[float], float | None, str]:
    """Return the times of outputs, the time of the first figure, and the end of the output."""
    times: list[float] = []
    first_figure, written = None, b""
    while True:
        ready = select.select([screen], [], [], 0.1)[0]
        now = time.perf_counter() - started
        if first_figure is None and next(figures.rglob("*.png"), None) is not None:
            first_figure = now
        if not ready:
            continue
        try:
            some = os.read(screen, 65536)
        except OSError:  # The process has ended.
            some = b""
        if not some:
            return times, first_figure, written.decode(errors="replace")
        times.append(now)
        written = (written + some)[-10_000:]


def _cpu_seconds() -> float:
    """Return the CPU time of the processes that were waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
