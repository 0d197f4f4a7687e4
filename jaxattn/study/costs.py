"""The cost of making figures: seconds of processes and of compiling, and the number of programs."""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from jaxattn.study.events import Compiling, Report

# JAX's event for every program, also for one loaded from the cache.
_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHED = "/jax/compilation_cache/cache_hits"
# The beginning of JAX's warning that a cached program cannot be loaded. JAX leaves the entry in the cache.
_UNREADABLE = "Error reading persistent compilation cache entry"


@dataclass
class Costs:
    """The time and programs that processes have used, and how many of these were cached, or cached but unreadable."""

    seconds: float = 0.0
    compiling: float = 0.0
    programs: int = 0
    cached: int = 0
    unreadable: int = 0

    def __add__(self, other: Costs) -> Costs:
        return Costs(*map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


# The costs that are being counted in this process, and the functions called when compiling begins or ends.
_counting: list[tuple[Costs, Report]] = []


@contextmanager
def counted(report: Report) -> Iterator[Costs]:
    """Count this process's costs in a `with` block, and report when XLA begins or ends compiling."""
    _listen()
    costs, began, show = Costs(), time.perf_counter(), warnings.showwarning

    def count_unreadable(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if str(message).startswith(_UNREADABLE):
            costs.unreadable += 1
        else:
            show(message, *args, **kwargs)

    _counting.append((costs, report))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", _UNREADABLE)
            warnings.showwarning = count_unreadable
            yield costs
    finally:
        _counting.pop()
        costs.seconds = time.perf_counter() - began


@functools.cache
def _listen() -> None:
    """Listen to JAX's events from now on: versions before 0.9 have no public way to stop."""

    def happened(event: str, **_: Any) -> None:
        if event == _CACHED:
            for costs, _report in _counting:
                costs.cached += 1

    def began(event: str, value: float, **_: Any) -> None:
        del value
        if event == _COMPILE:
            for _costs, report in _counting:
                report(Compiling(True))

    def ended(event: str, duration_secs: float, **_: Any) -> None:
        if event == _COMPILE:
            for costs, report in _counting:
                costs.programs += 1
                costs.compiling += duration_secs
                report(Compiling(False))

    jax.monitoring.register_event_listener(happened)
    jax.monitoring.register_scalar_listener(began)
    jax.monitoring.register_event_duration_secs_listener(ended)
