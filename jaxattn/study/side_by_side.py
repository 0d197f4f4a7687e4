"""Experiments side by side, each in a process: tracing, compiling and drawing keep one core busy, and no other."""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax
from omegaconf import DictConfig

from jaxattn.parallel.processes import ProcessError
from jaxattn.study import costs, ending, fingerprints, making, runs
from jaxattn.study.events import Event, Report
from jaxattn.study.mistakes import UsageError
from jaxattn.study.tuning import tune

# Hundreds of programs are more than a process can hold: after so many experiments they are let go.
_TOGETHER = 8
_number = itertools.count(1)
# Seconds between two looks at what the processes report.
_PAUSE = 0.2

# The lines of an experiment's claims, and what it cost.
Made = tuple[list[dict[str, Any]], costs.Costs]


def processes(asked: int | None, experiments: int) -> int:
    """Return how many to use: one where an accelerator does the work, as each would take its memory.

    Raises:
        UsageError: less than one is asked for.
    """
    if asked is not None and asked < 1:
        raise UsageError(f"workers: expected at least 1, found {asked}")
    if experiments < 2 or jax.default_backend() != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores if asked is None else asked, experiments)


class Pool(NamedTuple):
    """Processes that make experiments, and the queue by which they report."""

    executor: ProcessPoolExecutor
    events: Any
    processes: int


@contextlib.contextmanager
def pool(count: int) -> Iterator[Pool | None]:
    """Start processes, which import JAX while the caller goes on; none where one is enough."""
    if count == 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    with ProcessPoolExecutor(count, context, initializer=_begin, initargs=(events,)) as executor:
        for _ in range(count):
            executor.submit(os.getpid)
        try:
            yield Pool(executor, events, count)
        except BaseException:
            # An interrupt, or a mistake in one: what the others have finished is kept, as when they are interrupted.
            executor.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                # By SIGTERM: what a shell starts in the background ignores SIGINT.
                child.terminate()
            raise


def each(
    composed: Mapping[str, Sequence[DictConfig]],
    folder: Path,
    seconds: Mapping[str, float],
    pool: Pool | None,
    begun: Callable[[str], None],
    note: Callable[[str, Event], None],
) -> Iterator[tuple[str, Made]]:
    """Yield the name of every experiment, the lines of its claims and what it cost, as they are made.

    Experiments that share a run are made one after the other. The shortest goes first, so that there is a figure soon;
    of the others the longest, so that no long one is left for the end.

    Args:
        composed: the configurations of every experiment's runs.
        folder: of the figures.
        seconds: what an experiment took, where that is known.
        pool: of processes; if None, all is made in this process, in the order given.
        begun: called with the name of each as it begins.
        note: called with its name and what it reports; in this process, at most a moment later.

    Raises:
        ProcessError: a process ended without a word; and whatever `making.make` raises. The others are interrupted.
    """
    if pool is None:
        for name, configs in composed.items():
            begun(name)
            yield name, _make(name, configs, folder, functools.partial(note, name))
        return
    needs = {name: set(map(runs.folder, configs)) for name, configs in composed.items()}
    waiting = sorted(composed, key=lambda name: -seconds.get(name, float("inf")))
    waiting = waiting[-1:] + waiting[:-1]
    running: dict[Future[Any], str] = {}
    try:
        while waiting or running:
            taken = set[Path]().union(*(needs[name] for name in running.values()))
            for name in list(waiting):
                if len(running) < pool.processes and taken.isdisjoint(needs[name]):
                    running[pool.executor.submit(_make_here, name, composed[name], folder)] = name
                    begun(name)
                    taken |= needs[name]
                    waiting.remove(name)
            done = wait(running, timeout=_PAUSE, return_when=FIRST_COMPLETED).done
            for name, event in _reported(pool.events):
                note(name, event)
            for future in done:
                made = future.result()  # If it raises, `running` still names the experiment.
                yield running.pop(future), made
    except BrokenProcessPool as error:
        # The pool has sent SIGTERM to the others.
        pool.executor.shutdown()
        for name in running.values():
            for config in composed[name]:
                runs.ended(config)
        raise ProcessError(
            f"a process ended without a word (killed, or out of memory?) while these were made: "
            f"{', '.join(sorted(running.values()))}; the same command goes on from there"
        ) from error


def _reported(events: Any) -> Iterator[tuple[str, Event]]:
    """Yield what the processes have reported by now, with the names of their experiments."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield events.get_nowait()


# In each of several processes: what takes its reports to the one that has started it.
_events: Any = None


def _begin(events: Any) -> None:
    global _events
    _events = events
    # What is not told yet when this process ends is of no use: it does not wait, not even where another was killed
    # while it wrote.
    events.cancel_join_thread()
    tune()
    ending.on_terminate()


def _make_here(name: str, configs: Sequence[DictConfig], folder: Path) -> Made:
    return _make(name, configs, folder, lambda event: _events.put((name, event)))


def _make(name: str, configs: Sequence[DictConfig], folder: Path, report: Report) -> Made:
    with costs.counted(report) as counter, fingerprints.still():
        lines = making.make(name, list(configs), folder, counter.report)
    if next(_number) % _TOGETHER == 0:
        jax.clear_caches()
    return lines, counter.costs()
