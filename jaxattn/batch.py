"""Lift a function of one seed over many: `vmap` in chunks of bounded memory, one chunk to a core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# A chunk's working set should stay in a core's cache, and its results in memory: the first bound is
# the number of lanes, the second the bytes of one chunk's arguments and results.
LANES = 128
MEMORY = 2**30


def lanes(arguments: Any, result: Any, memory: int = MEMORY, most: int = LANES) -> int:
    """Return how many lanes of these one-lane arguments and results fit into `memory` bytes.

    Both are pytrees of arrays or of `jax.ShapeDtypeStruct`, as `jax.eval_shape` returns them.

    Raises:
        MemoryError: one lane alone does not fit.
    """
    size = _bytes((arguments, result))
    if size > memory:
        raise MemoryError(f"one seed needs {size:,} bytes, more than the {memory:,} given to a chunk")
    return max(1, min(most, memory // max(size, 1)))


def _bytes(arrays: Any) -> int:
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))


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
    workers: int | None = None,
) -> Generator[tuple[slice, Any]]:
    """Yield (lanes, results of `vmap(function)` on them), chunk after chunk, as NumPy arrays.

    Every chunk has the same length (the last is filled up with its own last lane and cut), so the
    function compiles once. `function` must be hashable: a module-level function, or a partial kept
    by the caller, so that the next call finds it compiled.

    Args:
        function: of one lane; a pure function of pytrees of arrays.
        arguments: its first arguments, each with a leading batch axis.
        shared: its further arguments, the same for all lanes.
        chunk: lanes in one chunk, also where there are fewer: so calls with batches of different
            lengths compile once; from the memory that one lane needs, and at most a core's part, if None.
        workers: chunks computed at once; as many as `side_by_side` says if None. They do not show in the
            results.

    Raises:
        ValueError: arguments without a common leading axis, random keys among them, chunk or workers < 1.
    """
    arguments = jax.tree.map(_numbers, arguments)
    total = length(arguments)
    if chunk is None:
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arguments)
        chunk = min(lanes(one, jax.eval_shape(function, *one, *shared)), per_core(total))
    for name, given in (("chunk", chunk), ("workers", workers)):
        if given is not None and given < 1:
            raise ValueError(f"{name}: expected at least 1, found {given}")
    if total == 0:
        return
    parts = [slice(start, min(start + chunk, total)) for start in range(0, total, chunk)]

    # Made here and not by a worker: contexts such as `jax.enable_x64` hold for one thread.
    def arguments_of(part: slice) -> Any:
        return jax.device_put((*jax.tree.map(lambda leaf: _filled(leaf[part], chunk), arguments), *shared))

    lifted = _lifted(function, len(arguments), len(shared))
    first = arguments_of(parts[0])
    lowered = lifted.trace(*first).lower()
    compiled = lowered.compile()

    def run(part: slice, given: Any) -> tuple[slice, Any]:
        return part, jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[: part.stop - part.start]), compiled(*given))

    if len(parts) == 1:
        workers = 1
    elif workers is None:
        most = MEMORY // max(1, _bytes((lowered.args_info, lowered.out_info)))
        workers = min(side_by_side(lowered), max(1, most))
    given = chain([(parts[0], first)], ((part, arguments_of(part)) for part in parts[1:]))
    if workers == 1:
        yield from (run(*one) for one in given)
    else:
        yield from _in_order(run, given, workers)


def side_by_side(lowered: Any) -> int:
    """Return how many chunks of a lowered program may run at once: on the CPU, one for every core.

    XLA spreads no small array operation over cores. But a batched LAPACK call waits inside XLA's thread
    pool for its own parts, and several at once can wait for ever (see `svm.pivoting`), as can calls back
    into Python: programs with any such call run one after the other, as do those of accelerators.
    """
    if jax.default_backend() != "cpu" or "custom_call" in lowered.as_text():
        return 1
    return _cores()


def per_core(total: int) -> int:
    """Return how many of `total` lanes, at least 1, are one core's part; all of them on an accelerator."""
    return max(1, -(-total // (_cores() if jax.default_backend() == "cpu" else 1)))


def _cores() -> int:
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len(available)


def _in_order(run: Callable[..., Any], calls: Iterable[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    """Yield `run` of each call in turn, computed by `workers` threads that are at most one call each ahead."""
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
    workers: int | None = None,
) -> Any:
    """Return `vmap(function)` of the arguments as NumPy arrays, computed in chunks (see `chunks`)."""
    parts = [result for _, result in chunks(function, *arguments, shared=shared, chunk=chunk, workers=workers)]
    if not parts:
        raise ValueError("batch: expected at least one lane, found none")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@lru_cache(maxsize=64)
def _lifted(function: Callable[..., Any], arguments: int, shared: int) -> Any:
    return jax.jit(jax.vmap(function, in_axes=(0,) * arguments + (None,) * shared))


def _numbers(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"batch: expected arrays of numbers, found {leaf.size} random keys; pass jax.random.key_data(keys) and "
            "wrap them in the function by jax.random.wrap_key_data"
        )
    return np.asarray(leaf)


def _filled(lanes: Any, chunk: int) -> Any:
    missing = chunk - lanes.shape[0]
    return lanes if missing == 0 else np.concatenate([lanes, np.repeat(lanes[-1:], missing, axis=0)])
