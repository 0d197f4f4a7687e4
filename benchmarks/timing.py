"""How the benchmarks measure times."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

ROUNDS = 5


def rounds(*runs: Callable[[], object]) -> np.ndarray:
    """Return the seconds of timed calls, (rounds, runs), after one call of each run that compiles.

    The runs take turns, so that what slows the machine down for a while slows all of them down.
    """
    for run in runs:
        run()
    return np.array([[_seconds(run) for run in runs] for _ in range(ROUNDS)])


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - started


def median_seconds(run: Callable[[], object]) -> float:
    """Return the median of several timed calls, after one call that compiles."""
    return statistics.median(rounds(run)[:, 0].tolist())


# What the kernel calls them, widest first.
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2"}


def processor() -> str:
    """Return the name of the processor, its widest vector instructions, and how many cores there are."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    told = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    flags = told.get("flags", "").split()
    widest = next((f" with {name}" for flag, name in _VECTORS.items() if flag in flags), "")
    name = told.get("model name") or platform.processor() or platform.machine()
    return f"{name}{widest}, {os.cpu_count()} cores"
