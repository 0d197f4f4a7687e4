"""Timings as the benchmarks take them."""

import statistics
import time
from collections.abc import Callable

import jax

ROUNDS = 5


def median_seconds(run: Callable[[], object]) -> float:
    """Return the median of several timed calls, after one that compiles."""
    run()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
