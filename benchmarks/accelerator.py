"""Measure an accelerator against the processor of the same machine, and compare what the two find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.descent import LAWS, RULES, drawn
from benchmarks.svm import posed
from benchmarks.timing import median_seconds
from jaxattn import Problem, attention, descent, svm
from jaxattn.study.mistakes import UsageError
from jaxattn.svm import Status

# The first is measured on the processor too; the second keeps an accelerator busy.
SEEDS = (1000, 65_536)
PROBLEMS = (1000, 4096)
SIZES = (6, 8, 10)
STEPS = 1000
# In descent on (K, Q) a last digit becomes large later on.
COMPARED_STEPS = 200


def table() -> Iterator[dict[str, Any]]:
    """Yield the times of training and of solvers on both, with the largest differences; UsageError without one."""
    if jax.default_backend() == "cpu":
        raise UsageError("bench: the part accelerator expects a GPU or TPU, found only the CPU")
    yield from training()
    yield from solving()


def training() -> Iterator[dict[str, Any]]:
    """Yield the microseconds per step and seed, and the largest difference of directions after 200 steps."""
    for name, law in LAWS.items():
        run = partial(trained, {seeds: drawn(law, seeds) for seeds in SEEDS})
        compared = partial(run, SEEDS[0], COMPARED_STEPS)
        here, there = directions(on_processor(compared)), directions(compared())
        what = f"training {name}"
        yield from rows(what, "microseconds a step and seed", run, SEEDS, 1e6 / STEPS)
        yield {"what": what, "on": "both", "lanes": SEEDS[0], "largest difference": float(np.abs(here - there).max())}


def solving() -> Iterator[dict[str, Any]]:
    """Yield the milliseconds per problem, how many are certified on both, and how far the optimal norms differ."""
    for norm in ("frobenius", "nuclear"):
        run = partial(solved, norm, {count: posed(*SIZES, count) for count in PROBLEMS})
        here, there = on_processor(partial(run, PROBLEMS[0])), run(PROBLEMS[0])
        optimal = (here.status == Status.OPTIMAL) & (there.status == Status.OPTIMAL)
        what = f"solving {norm}"
        yield from rows(what, "milliseconds a problem", run, PROBLEMS, 1e3)
        yield {
            "what": what,
            "on": "both",
            "lanes": PROBLEMS[0],
            "optimal on both": int(optimal.sum()),
            "statuses that differ": int((here.status != there.status).sum()),
            "largest gap": float(np.asarray(there.gap)[optimal].max()),
            "largest difference": float(np.abs(np.asarray(there.primal / here.primal)[optimal] - 1).max()),
        }


def trained(given: Mapping[int, tuple[Any, Problem]], seeds: int, steps: int = STEPS) -> descent.Run:
    """Train this many seeds by the published rule."""
    return descent.train_batch(*given[seeds], optimizer=RULES["as published"], steps=steps, record_every=steps)


def solved(norm: str, given: Mapping[int, svm.Constraints], count: int) -> svm.Solution:
    """Solve this many problems."""
    return svm.solve_batch(given[count], norm)


def rows(
    what: str, unit: str, run: Callable[[int], object], lanes: tuple[int, ...], scale: float
) -> Iterator[dict[str, Any]]:
    """Yield the median time of one lane: of the first batch on the processor, and of each on the accelerator."""
    seconds = on_processor(lambda: median_seconds(partial(run, lanes[0])))
    yield {"what": what, "on": "processor", "lanes": lanes[0], "time": scale * seconds / lanes[0], "unit": unit}
    for count in lanes:
        seconds = median_seconds(partial(run, count))
        yield {"what": what, "on": "accelerator", "lanes": count, "time": scale * seconds / count, "unit": unit}


def on_processor(run: Callable[[], Any]) -> Any:
    """Return what a call gives with the processor as JAX's device."""
    with jax.default_device(jax.devices("cpu")[0]):
        return run()


def directions(run: descent.Run) -> np.ndarray:
    """Return W of each seed, divided by its Frobenius norm."""
    W = np.asarray(attention.matrix(run.weights))
    return W / np.linalg.norm(W, axis=(1, 2), keepdims=True)
