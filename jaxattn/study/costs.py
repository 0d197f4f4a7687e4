"""The cost of making figures: seconds of compiling, computing and drawing, and the number of programs."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from jaxattn.study.events import Compiling, Event, Report, Stage, Staged

_TRACE = ("/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")
# JAX's event for every program, also for one loaded from the cache.
_COMPILE = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/cache_hits"
# The beginning of JAX's warning that a cached program cannot be loaded. JAX leaves the entry in the cache.
_UNREADABLE = "Error reading persistent compilation cache entry"


@dataclass(frozen=True)
class Costs:
    """The time and programs that processes have used.

    Attributes:
        seconds: total of all processes.
        tracing: seconds of tracing and lowering by JAX.
        compiling: seconds of compiling by XLA, or of loading cached programs.
        drawing: seconds of drawing figures.
        programs: the number of programs requested.
        found: how many of them were in the cache.
        unreadable: how many were in the cache but could not be loaded.
    """

    seconds: float = 0.0
    tracing: float = 0.0
    compiling: float = 0.0
    drawing: float = 0.0
    programs: int = 0
    found: int = 0
    unreadable: int = 0

    def __add__(self, other: Costs) -> Costs:
        """Return the sum of both costs."""
        sums = (a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        return Costs(*sums)

    def computing(self) -> float:
        """Return the remaining seconds, of draws, descent, solvers and statistics."""
        return max(0.0, self.seconds - self.tracing - self.compiling - self.drawing)


class Counter:
    """Measure this process's costs from now on, and forward the reports of an experiment."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self._drawing_since: float | None = None
        self._costs = Costs()
        # Durations counted so far in each thread, with their starting times: outer durations contain inner ones.
        self._counted: dict[int, list[tuple[float, float]]] = {}

    def report(self, event: Event) -> None:
        """Count the time of drawing, and forward the event."""
        if isinstance(event, Staged):
            self._drawn()
            if event.stage is Stage.DRAWING:
                self._drawing_since = time.perf_counter()
        self._report(event)

    def costs(self) -> Costs:
        """Return the costs so far."""
        self._drawn()
        return dataclasses.replace(self._costs, seconds=time.perf_counter() - self._began)

    def event(self, name: str) -> None:
        """Handle a JAX event."""
        if name == _FOUND:
            self._add(found=1)

    def started(self, name: str) -> None:
        """Handle the beginning of a JAX event."""
        if name == _COMPILE:
            self._report(Compiling(True))

    def duration(self, name: str, seconds: float) -> None:
        """Handle the end of a JAX event that took this long."""
        if name != _COMPILE and name not in _TRACE:
            return
        own = self._without_inner(seconds)
        if name == _COMPILE:
            self._add(compiling=own, programs=1)
            self._report(Compiling(False))
        else:
            self._add(tracing=own)

    def warned(self, shown: Callable[..., None], message: Warning | str, *given: Any, **more: Any) -> None:
        """Count JAX's warnings that a cached program cannot be loaded; show all other warnings."""
        if str(message).startswith(_UNREADABLE):
            self._add(unreadable=1)
        else:
            shown(message, *given, **more)

    def _add(self, **more: float) -> None:
        with self._lock:
            self._costs += Costs(**more)  # pyright: ignore[reportArgumentType]

    def _drawn(self) -> None:
        if self._drawing_since is not None:
            self._add(drawing=time.perf_counter() - self._drawing_since)
            self._drawing_since = None

    def _without_inner(self, seconds: float) -> float:
        """Return the part of a duration, ending now, that is not counted yet: tracing may trace and compile inside."""
        now = time.perf_counter()
        counted, inner = self._counted.setdefault(threading.get_ident(), []), 0.0
        while counted and counted[-1][0] >= now - seconds:
            inner += counted.pop()[1]
        counted.append((now - seconds, seconds))
        return max(0.0, seconds - inner)


# The counters that receive JAX's events.
_counters: list[Counter] = []


@contextmanager
def counted(report: Report) -> Iterator[Counter]:
    """Measure this process's costs in a `with` block.

    Args:
        report: also called when XLA begins or ends compiling a program.
    """
    _listen()
    counter = Counter(report)
    _counters.append(counter)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", _UNREADABLE)
            shown = warnings.showwarning
            warnings.showwarning = lambda *given, **more: counter.warned(shown, *given, **more)
            yield counter
    finally:
        _counters.remove(counter)


@functools.cache
def _listen() -> None:
    """Listen to JAX's events from now on: versions before 0.9 have no public way to stop."""

    def happened(event: str, **_: Any) -> None:
        for counter in _counters:
            counter.event(event)

    def began(event: str, value: float, **_: Any) -> None:
        del value
        for counter in _counters:
            counter.started(event)

    def ended(event: str, duration_secs: float, **_: Any) -> None:
        for counter in _counters:
            counter.duration(event, duration_secs)

    jax.monitoring.register_event_listener(happened)
    jax.monitoring.register_scalar_listener(began)
    jax.monitoring.register_event_duration_secs_listener(ended)
