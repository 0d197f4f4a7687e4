"""Run experiments side by side, one process each: tracing, compiling and drawing use only one core."""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax
from omegaconf import DictConfig

from jaxattn.study import costs, ending, fingerprints, making, runs
from jaxattn.study.events import Event, Report
from jaxattn.study.mistakes import ProcessError, UsageError
from jaxattn.study.tuning import tune

# A process cannot hold hundreds of programs: clear them after this many experiments.
_TOGETHER = 8
_number = itertools.count(1)
# Seconds between two checks of the processes' reports.
_PAUSE = 0.2

_ENDED = "a process ended without a message (killed, or out of memory?)"

Made = tuple[list[dict[str, Any]], costs.Costs]


def processes(asked: int | None, experiments: int) -> int:
    """Return how many processes to use: one if an accelerator does the work, since each would take its memory."""
    if asked is not None and asked < 1:
        raise UsageError(f"workers: expected at least 1, found {asked}")
    if experiments < 2 or jax.default_backend() != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores if asked is None else asked, experiments)


class Pool(NamedTuple):
    """Processes that make experiments, and the queue for their reports."""

    executor: ProcessPoolExecutor
    events: Any
    processes: int


@contextlib.contextmanager
def pool(count: int) -> Iterator[Pool | None]:
    """Start processes, which import JAX in the meantime; None if one process is enough."""
    if count == 1:
        yield None
        return
    # As many processes as cores: threads of NumPy's linear algebra would wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = multiprocessing.get_context("spawn")
    events = context.Queue()
    with ProcessPoolExecutor(count, context, initializer=_begin_worker, initargs=(events,)) as executor:
        with _without_interrupts():
            for _ in range(count):
                executor.submit(os.getpid)
        try:
            yield Pool(executor, events, count)
        except BaseException as error:
            # An interrupt, or an error in one process: what the others have finished is kept.
            executor.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                # SIGTERM, because the processes ignore SIGINT.
                child.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ProcessError(f"{_ENDED}; run the same command again to continue") from error
            raise


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore SIGINT, and let the processes that start now inherit that: this process ends them by SIGTERM."""
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heeded)


def each(
    composed: Mapping[str, Sequence[DictConfig]],
    folder: Path,
    seconds: Mapping[str, float],
    pool: Pool | None,
    begun: Callable[[str], None],
    note: Callable[[str, Event], None],
) -> Iterator[tuple[str, Made]]:
    """Yield the name of each experiment, the entries of its claims and its costs, as they are finished.

    Experiments that share a run are made one after the other; without a pool, all in this process. An error in one
    interrupts the others. ProcessError: a process ended without a message.
    """
    waiting = ordered(composed, seconds)
    if pool is None:
        for name in waiting:
            begun(name)
            yield name, _make(name, composed[name], folder, functools.partial(note, name))
        return
    needs = {name: set(map(runs.folder, configs)) for name, configs in composed.items()}
    running: dict[Future[Any], str] = {}
    try:
        while waiting or running:
            taken = set[Path]().union(*(needs[name] for name in running.values()))
            for name in list(waiting):
                if len(running) < pool.processes and taken.isdisjoint(needs[name]):
                    running[pool.executor.submit(_make_in_worker, name, composed[name], folder)] = name
                    begun(name)
                    taken |= needs[name]
                    waiting.remove(name)
            done = wait(running, timeout=_PAUSE, return_when=FIRST_COMPLETED).done
            with contextlib.suppress(queue.Empty):
                while True:
                    note(*pool.events.get_nowait())
            for future in done:
                made = future.result()  # If it raises, `running` still names the experiment.
                yield running.pop(future), made
    except BrokenProcessPool as error:
        # The pool has already sent SIGTERM to the others.
        pool.executor.shutdown()
        for name in running.values():
            for config in composed[name]:
                runs.ended(config)
        raise ProcessError(
            f"{_ENDED} while making {', '.join(sorted(running.values()))}; run the same command again to continue"
        ) from error


def ordered(composed: Mapping[str, Sequence[DictConfig]], seconds: Mapping[str, float]) -> list[str]:
    """Return the experiments in the order in which to begin them: the figures of the papers before the others.

    The shortest goes first, to give a figure soon; then the longest, so that no long one starts near the end.
    """
    longest = sorted(composed, key=lambda name: -seconds.get(name, float("inf")))
    published = [name for name in longest if composed[name][0].study.published]
    others = [name for name in longest if name not in published]
    order = published + others
    shortest = (published or others)[-1:]
    return shortest + [name for name in order if name not in shortest]


# In each worker process: the queue of reports to the parent process.
_events: Any = None


def _begin_worker(events: Any) -> None:
    global _events
    _events = events
    # Reports still in the queue when this process ends are not needed. Without this the process would wait for them,
    # even if another one was killed while writing.
    events.cancel_join_thread()
    tune()
    ending.with_parent(signal.SIGTERM)


def _make_in_worker(name: str, configs: Sequence[DictConfig], folder: Path) -> Made:
    ending.on_terminate()
    try:
        return _make(name, configs, folder, lambda event: _events.put((name, event)))
    except KeyboardInterrupt:
        # Nobody waits for a result, and the pool would wait for this process.
        os._exit(143)
    finally:
        # A process without a task ends at once, and without a traceback.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _make(name: str, configs: Sequence[DictConfig], folder: Path, report: Report) -> Made:
    with costs.counted(report) as spent, fingerprints.still(), making.located(name, configs):
        lines = making.make(name, configs, folder, report)
    if next(_number) % _TOGETHER == 0:
        jax.clear_caches()
    return lines, spent
