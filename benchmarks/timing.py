"""How the benchmarks measure times."""

import statistics
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

ROUNDS = 5


def median_seconds(run: Callable[[], object]) -> float:
    """Return the median of several timed calls, after one call that compiles."""
    run()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def exponent(values: Sequence[int], times: Sequence[float]) -> float:
    """Return the exponent of the growth of times with a size, from the last three points."""
    return float(np.polyfit(np.log(values[-3:]), np.log(times[-3:]), 1)[0])
