"""Apply a function of one seed to many: `vmap` over a fixed number of lanes, one program per core or device.

Each device runs its own program on its part of the seeds, compiled as for a single device. A program partitioned over
devices (`jax.shard_map`) would be compiled only once, but by other passes of XLA, and its last digits would depend on
the number of devices, which would show in descent on (K, Q) and in interior-point solutions.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxattn.parallel import forks
from jaxattn.parallel.effort import BRIEF, FULL, Effort

__all__ = ["over_seeds"]

# On a CPU, the working set of a program should fit into a core's cache: use this many lanes, or fewer if their
# arguments have more bytes, but enough for vector instructions. Arguments and results of all programs at once should
# fit into memory. An accelerator needs some thousand lanes to be busy, and has no such cache.
LANES, LEAST_LANES = 64, 16
FEW = 5
CACHE = 2**20
MEMORY = 2**30
ACCELERATOR_LANES = 4096
# Held while a program that calls out runs on a CPU, whichever thread started it (see `side_by_side`).
ONE_AT_A_TIME = Lock()


def lanes(arguments: Any, result: Any, memory: int = MEMORY, most: int = LANES) -> int:
    """Return how many lanes with these one-lane arguments and results fit into `memory` bytes.

    Both are pytrees of arrays or of `jax.ShapeDtypeStruct`, as returned by `jax.eval_shape`.

    Raises:
        MemoryError: one lane alone does not fit.
    """
    one = size((arguments, result))
    if one > memory:
        raise MemoryError(f"one seed needs {one:,} bytes, more than the {memory:,} given to a chunk")
    return max(1, min(most, memory // max(one, 1)))


def program_lanes(arguments: Any, result: Any, total: int, of: int | None = None) -> int:
    """Return how many of `total` lanes one program takes, from its one-lane arguments and results.

    Programs of different widths round differently, and in descent on (K, Q) a last digit becomes large in a few hundred
    steps. On a CPU the width therefore follows from the shapes alone, or, if this gives fewer than `FEW` programs, from
    the number of all lanes, `of`, divided equally. So the number of cores, devices or processes and the chunk size do
    not affect results. An accelerator's libraries also depend on the width, but there all devices get a part. Default:
    `of` = `total`.

    Raises:
        MemoryError: one lane alone does not fit.
    """
    if _on_cpu():
        cached = max(LEAST_LANES, CACHE // max(1, size(arguments)))
        most = lanes(arguments, result, most=min(LANES, cached))
        in_all = total if of is None else of
        programs = max(1, -(-in_all // most))
        return max(1, -(-in_all // programs)) if programs < FEW else most
    return lanes(arguments, result, most=min(ACCELERATOR_LANES, max(1, -(-total // len(_devices())))))


def size(arrays: Any) -> int:
    """Return the number of bytes of a pytree of arrays or of `jax.ShapeDtypeStruct`."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))


def length(arguments: Any) -> int:
    """Return the common length of the leading axis of all leaves.

    Raises:
        ValueError: no leaves, a leaf without axes, or leading axes of different lengths.
    """
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(arguments)}
    (length, *others) = lengths or {None}
    if others or length is None:
        raise ValueError(f"batch: expected one leading axis of one length, found lengths {lengths or 'none'}")
    return length


def chunks(
    function: Callable[..., Any],
    *arguments: Any,
    shared: tuple[Any, ...] = (),
    chunk: int | None = None,
    width: int | None = None,
    of: int | None = None,
    effort: Effort = BRIEF,
) -> Generator[tuple[slice, Any]]:
    """Yield (lanes, results of `vmap(function)` on them), part by part in order, as NumPy arrays.

    Each part is one program on each device, or on one core. All programs have the same number of lanes (the last is
    padded with copies of its last lane, and cut), so the function compiles once. `function` must be hashable and kept
    by the caller (a module-level function, or a stored partial), so that the next call finds it compiled.

    Args:
        function: a pure function of one lane, of pytrees of arrays.
        arguments: its first arguments, each with a leading batch axis.
        shared: its further arguments, the same for all lanes.
        chunk: the largest number of lanes computed at once, if this exceeds one program. Default: as many as devices or
            cores and memory allow. It does not affect the results.
        width: the number of lanes of one program, also for shorter batches, so that calls with batches of different
            lengths compile once. Default: `program_lanes`.
        of: the total number of lanes of the study, which determines the width on a CPU. Default: the number of these
            lanes.
        effort: the compilation effort on a CPU; use `effort.FULL` for programs that run for many seconds.

    Raises:
        ValueError: arguments without a common leading axis, random keys or traced values among them, chunk or width
            < 1, or more lanes than `of`.
        MemoryError: one lane alone does not fit.
    """
    forks.check()
    check_concrete(arguments)
    arguments = jax.tree.map(_numbers, arguments)
    total = length(arguments)
    for name, given in (("chunk", chunk), ("width", width)):
        if given is not None and given < 1:
            raise ValueError(f"{name}: expected at least 1, found {given}")
    if of is not None and of < total:
        raise ValueError(f"of: expected at least the {total} lanes given, found {of}")
    lifted = compiled(function, len(arguments), len(shared), effort)
    if width is None:
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arguments)
        width = program_lanes(one, (), total, of)
        # Tracing takes seconds, and is done again only if the results are so large that fewer lanes fit into memory.
        together = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((width, *leaf.shape), leaf.dtype), one)
        results = lifted.eval_shape(*together, *shared)
        result = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), results)
        width = program_lanes(one, result, total, of)
    if total == 0:
        return
    parts = [slice(start, min(start + width, total)) for start in range(0, total, width)]
    places = _devices()
    programs: list[_Program] = []

    # Lower here and not in a worker: contexts like `jax.enable_x64` apply to one thread.
    def prepared(number: int) -> tuple[slice, Any, _Program]:
        given = (*jax.tree.map(lambda leaf: _filled(leaf[parts[number]], width), arguments), *shared)
        given = jax.device_put(given, places[number % len(places)])
        if number < len(places):
            programs.append(_Program(lifted, given))
        return parts[number], given, programs[number % len(places)]

    first = prepared(0)
    at_once = min(len(parts), first[2].at_once())
    if chunk is not None:
        at_once = min(at_once, max(1, chunk // width))
    places = places[:at_once]
    calls = (first if number == 0 else prepared(number) for number in range(len(parts)))
    if at_once == 1:
        yield from (_run(*call) for call in calls)
    else:
        yield from _in_order(_run, calls, at_once)


# Whether a batched function makes calls out of its program, for each shape and type of its arguments.
_calls_out: WeakKeyDictionary[Any, dict[Any, bool]] = WeakKeyDictionary()


class _Program:
    """A program for one device, compiled by the first worker that needs it while the others wait."""

    def __init__(self, lifted: Any, given: Any) -> None:
        self._lowered, self._compiled, self._lock = lifted.trace(*given).lower(), None, Lock()
        known = _calls_out.setdefault(lifted, {})
        leaves, structure = jax.tree.flatten(given)
        key = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if key not in known:  # Writing the text takes milliseconds.
            known[key] = "custom_call" in self._lowered.as_text()
        self._calls_out = known[key]

    def at_once(self) -> int:
        """Return how many programs devices or cores, and memory, allow at once."""
        if not _on_cpu():
            return side_by_side(self._calls_out)
        needed = size((self._lowered.args_info, self._lowered.out_info))
        return max(1, min(side_by_side(self._calls_out), MEMORY // max(1, needed)))

    def __call__(self, *given: Any) -> Any:
        """Return the results as NumPy arrays."""
        with self._lock:
            self._compiled = self._compiled or self._lowered.compile()
        with ONE_AT_A_TIME if self._calls_out and _on_cpu() else nullcontext():
            return jax.tree.map(np.asarray, self._compiled(*given))


def _run(part: slice, given: Any, program: _Program) -> tuple[slice, Any]:
    return part, jax.tree.map(lambda leaf: np.array(leaf[: part.stop - part.start]), program(*given))


def side_by_side(calls_out: bool) -> int:
    """Return how many programs may run at once: one per device, or one per core on a CPU that is one device.

    XLA does not spread small array operations over cores. But on a CPU a batched LAPACK call waits inside XLA's thread
    pool for its own parts, and several such calls, or calls back into Python, can deadlock (see `svm.pivoting`).
    Programs that call out therefore run one after the other there, also those of several threads.
    """
    count = len(_devices())
    if not _on_cpu():
        return count
    if calls_out:
        return 1
    return count if count > 1 else _cores()


def _devices() -> tuple[Any, ...]:
    """Return this process's devices of the default backend, or only `jax.default_device` if it is set."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return (chosen,) if isinstance(chosen, jax.Device) else tuple(jax.local_devices(backend=chosen))


def _on_cpu() -> bool:
    return _devices()[0].platform == "cpu"


def _cores() -> int:
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len(available)


def _in_order(run: Callable[..., Any], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    """Yield `run` of each call in order, computed by `workers` threads that are each at most one call ahead."""
    running: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for call in calls:
                running.append(pool.submit(run, *call))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def over_seeds(
    function: Callable[..., Any],
    *arguments: Any,
    shared: tuple[Any, ...] = (),
    chunk: int | None = None,
    width: int | None = None,
    of: int | None = None,
    effort: Effort = BRIEF,
    cut: Callable[[Any], Any] = lambda part: part,
) -> Any:
    """Return `vmap(function)` of the arguments as NumPy arrays, computed in parts; the arguments are those of `chunks`.

    `cut` maps the result of each part to what is kept of it, so that the rest does not accumulate in memory.

    Raises:
        ValueError: no lane, or as in `chunks`.

    Example:
        >>> batch.over_seeds(jnp.linalg.norm, np.ones((100, 4)))[:3].tolist()
        [2.0, 2.0, 2.0]
    """
    computed = chunks(function, *arguments, shared=shared, chunk=chunk, width=width, of=of, effort=effort)
    parts = [cut(result) for _, result in computed]
    if not parts:
        raise ValueError("batch: expected at least one lane, found none")
    return jax.tree.map(lambda *leaves: leaves[0] if len(leaves) == 1 else np.concatenate(leaves), *parts)


def in_parts(function: Callable[..., Any], *arguments: Any, most: int) -> Any:
    """Return a function of lanes of NumPy arrays, computed in parts of at most `most` lanes, two at a time.

    Its result for a lane must not depend on the other lanes.
    """
    # Freeing a large array makes glibc keep freed memory, up to twice this size. Otherwise it returns each temporary
    # array to the system, and half the time goes into mapping pages again.
    np.empty(CACHE * 16, np.uint8)
    # Short calls of NumPy wait for each other: two threads save a third of the time, 16 take three times that of one.
    total, threads = length(arguments), min(2, _cores())
    width = -(-total // (threads * -(-total // (most * threads))))
    parts = (
        jax.tree.map(lambda leaf, start=start: leaf[start : start + width], arguments)
        for start in range(0, total, width)
    )
    found = list(_in_order(function, parts, threads))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)


@dataclass(frozen=True, eq=False)
class Lifting:
    """A function of one lane with its own batched version; `vmap` would first trace it for one lane.

    Attributes:
        one: the function of one lane.
        lifted: the batched function, over the leading axis of its arguments (except shared ones) and results.
    """

    one: Callable[..., Any]
    lifted: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return the result of one lane."""
        return self.one(*arguments)


def compiled(function: Callable[..., Any], arguments: int = 1, shared: int = 0, effort: Effort = BRIEF) -> Any:
    """Return `jit(vmap(function))` for numbers of batched and of shared arguments; equal arguments give one object."""
    return _lifted(function, arguments, shared, effort if _on_cpu() else FULL)


@lru_cache(maxsize=256)
def _lifted(function: Callable[..., Any], arguments: int, shared: int, effort: Effort) -> Any:
    if isinstance(function, Lifting):
        lifted = function.lifted
    else:
        lifted = jax.vmap(function, in_axes=(0,) * arguments + (None,) * shared)
    return jax.jit(lifted, compiler_options=effort.options() if effort != FULL else None)


def check_concrete(
    arguments: Any,
    name: str = "batch",
    hint: str = "there, `vmap` the function of one seed, such as descent.train or svm.solve",
) -> None:
    """Raise ValueError if arrays are traced."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)):
        raise ValueError(
            f"{name}: expected arrays whose numbers can be read, found those of `jit`, `vmap` or `grad`; {hint}"
        )


def is_key(leaf: Any) -> bool:
    """Return whether an array consists of random keys."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _numbers(leaf: Any) -> np.ndarray:
    if is_key(leaf):
        raise ValueError(
            f"batch: expected arrays of numbers, found {leaf.size} random keys; pass jax.random.key_data(keys) and "
            "wrap them in the function by jax.random.wrap_key_data"
        )
    return np.asarray(leaf)


def _filled(lanes: np.ndarray, length: int) -> np.ndarray:
    missing = length - lanes.shape[0]
    return lanes if missing == 0 else np.concatenate([lanes, np.repeat(lanes[-1:], missing, axis=0)])
