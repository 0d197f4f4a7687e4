"""A command as it is seen by who types it: how long it takes, when something moves on the screen, what it compiles."""

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

# Sent for every program; within it the second, for one that was compiled before and kept.
_ASKED, _FOUND = "/jax/core/compile/backend_compile_duration", "/jax/compilation_cache/cache_hits"
_COUNTING = Path(__file__).parent / "counting"
_LONG = 0.1  # seconds; programs that take more are counted by themselves


@dataclass(frozen=True)
class Watched:
    """What was seen of a command.

    Attributes:
        seconds: until it ended.
        cpu_seconds: of the processors, in all of its processes.
        compiled: programs that were compiled, in all of its processes.
        found: programs that were compiled before, and kept.
        long: programs compiled or loaded in more than 0.1 s.
        compiling: seconds of compiling and loading, summed over processes.
        first_output: seconds until something was written on the screen.
        longest_pause: seconds, the most between two outputs.
        first_figure: seconds until the first PNG file lay in the folder; None if there was none.
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
    """Run a Python command on a terminal of its own, and return what was seen.

    Args:
        command: what follows the interpreter.
        root: the folder it runs in, from which its packages are imported.
        variables: of its environment, beside those there are.
        figures: the folder where figures appear.

    Raises:
        RuntimeError: it ended with an error; the message has the end of what it wrote.
    """
    with tempfile.TemporaryDirectory() as events:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = os.pathsep.join(
            [str(_COUNTING), str(root), *([variables["PYTHONPATH"]] if "PYTHONPATH" in variables else [])]
        )
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
            # Its processes are a group of their own, which an interrupt of this one does not reach.
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
    """Return when something was written, when the first figure was there, and the end of what was written."""
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
        except OSError:  # The terminal of a process that has ended.
            some = b""
        if not some:
            return times, first_figure, written.decode(errors="replace")
        times.append(now)
        written = (written + some)[-10_000:]


def _cpu_seconds() -> float:
    """Return what the processes that were waited for, and theirs, have taken of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
