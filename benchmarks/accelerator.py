"""Measure an accelerator against the processor of the same machine, and compare what the two find."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.descent import LAWS, RULES, STEPS, drawn
from benchmarks.svm import posed
from benchmarks.timing import median_seconds
from jaxattn import attention, descent, svm
from jaxattn.study.mistakes import UsageError
from jaxattn.svm import Status

# A batch as the processor likes it, and one that keeps an accelerator busy.
SEEDS = (1000, 65_536)
PROBLEMS = (1000, 16_384)
SIZES = (6, 8, 10)
# In descent on (K, Q) a last digit becomes large later on.
COMPARED_STEPS = 200


def table() -> Iterator[dict[str, Any]]:
    """Yield the times of training and of solvers on both, with the largest differences of their results.

    Raises:
        UsageError: JAX finds no accelerator.
    """
    if jax.default_backend() == "cpu":
        raise UsageError("bench: the part accelerator expects a GPU or TPU, found only the CPU")
    yield from training()
    yield from solving()


def training() -> Iterator[dict[str, Any]]:
    """Yield the microseconds per step and seed, and the largest difference of directions after 200 steps."""
    for name, law in LAWS.items():
        for seeds in SEEDS:
            weights, problems = drawn(law, seeds)
            run = partial(descent.train_batch, weights, problems, optimizer=RULES["as published"])
            seconds = on_both(partial(run, steps=STEPS, record_every=STEPS))
            here, there = (directions(one) for one in results(partial(run, steps=COMPARED_STEPS)))
            yield {
                "what": f"training {name}",
                "lanes": seeds,
                "unit": "microseconds a step and seed",
                **{device: 1e6 * value / STEPS / seeds for device, value in seconds.items()},
                "ratio": seconds["processor"] / seconds["accelerator"],
                "largest difference": float(np.abs(here - there).max()),
            }


def solving() -> Iterator[dict[str, Any]]:
    """Yield the milliseconds per problem, how many are certified on both, and how far the optimal norms differ."""
    for norm in ("frobenius", "nuclear"):
        for count in PROBLEMS:
            constraints = posed(*SIZES, count)
            run = partial(svm.solve_batch, constraints, norm)
            seconds = on_both(run)
            here, there = results(run)
            optimal = (here.status == Status.OPTIMAL) & (there.status == Status.OPTIMAL)
            values = [np.asarray(one.primal)[optimal] for one in (here, there)]
            yield {
                "what": f"solving {norm}",
                "lanes": count,
                "unit": "milliseconds a problem",
                **{device: 1e3 * value / count for device, value in seconds.items()},
                "ratio": seconds["processor"] / seconds["accelerator"],
                "optimal": [int((one.status == Status.OPTIMAL).sum()) for one in (here, there)],
                "statuses that differ": int((here.status != there.status).sum()),
                "largest gap": float(np.asarray(there.gap)[optimal].max()),
                "largest difference": float(np.abs(values[1] / values[0] - 1).max()),
            }


def on_both(run: Any) -> dict[str, float]:
    """Return the median seconds of a call on the processor and on the accelerator."""
    with jax.default_device(jax.devices("cpu")[0]):
        processor = median_seconds(run)
    return {"processor": processor, "accelerator": median_seconds(run)}


def results(run: Any) -> tuple[Any, Any]:
    """Return what a call computes on the processor and on the accelerator."""
    with jax.default_device(jax.devices("cpu")[0]):
        here = run()
    return here, run()


def directions(run: descent.Run) -> np.ndarray:
    """Return W of each seed, divided by its Frobenius norm."""
    W = np.asarray(attention.matrix(run.weights))
    return W / np.linalg.norm(W, axis=(1, 2), keepdims=True)
