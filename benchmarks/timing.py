"""How the benchmarks measure times."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


def exponent(values: Sequence[int], times: Sequence[float]) -> float:
    """Return the exponent of the growth of times with a size, from the last three points."""
    return float(np.polyfit(np.log(values[-3:]), np.log(times[-3:]), 1)[0])


def curve(values: Sequence[int], times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return what a line of a scaling figure holds of its times: medians and quartiles over the rounds.

    Args:
        values: of the size.
        times: for each value those of all rounds. A difference of two times may be negative by chance; it is kept, but
            a round with such a time gives no exponent.

    Raises:
        RuntimeError: a median is not positive.
    """
    table = np.asarray(times, float)
    low, middle, high = np.quantile(table, [0.25, 0.5, 0.75], axis=1)
    if middle.min() <= 0:
        raise RuntimeError(
            f"timing: expected positive times, found the medians {middle.tolist()}; is the machine idle?"
        )
    of_rounds = [exponent(values, one) for one in table.T.tolist() if min(one) > 0]
    return {
        "values": list(values),
        "times": middle.tolist(),
        "quartiles": [low.tolist(), high.tolist()],
        "rounds": table.shape[1],
        "exponent": float(np.median(of_rounds)) if of_rounds else exponent(values, middle.tolist()),
        "exponent quartiles": np.quantile(of_rounds, [0.25, 0.75]).tolist() if of_rounds else None,
        "processor": processor(),
    }


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
