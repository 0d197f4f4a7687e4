"""Measure a cell of the atlas: train 100 seeds with an optimizer, and rank them by five norms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.timing import median_seconds
from jaxattn import bias, data, descent, initial

SHAPE, SEEDS = (6, 8, 10), 100
# The cost per step does not depend on the number of steps; a cell has ten times as many.
STEPS, CELL = 2000, 20_000
RULES = {
    "normalized": descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
    "sign": descent.steepest("max", 0.01),
    "polar": descent.steepest("spectral", 0.03),
}


def cells() -> Iterator[dict[str, Any]]:
    """Yield the seconds of training with each optimizer, on W and on (K, Q), and of one ranking."""
    keys = jax.random.split(jax.random.key(1), SEEDS)
    problems = jax.jit(jax.vmap(partial(data.sphere, n=SHAPE[0], T=SHAPE[1], d=SHAPE[2])))(keys)
    d = SHAPE[2]
    starts = {"W": jnp.zeros((SEEDS, d, d)), "(K, Q)": jax.vmap(partial(initial.factored, d=d))(keys)}
    line = {"shape": list(SHAPE), "seeds": SEEDS}
    for name, rule in RULES.items():
        for parameters, start in starts.items():
            train = partial(descent.train_batch, start, problems, optimizer=rule, steps=STEPS, record_every=100)
            seconds = median_seconds(train)
            yield line | {
                "rule": name,
                "trained": parameters,
                "steps": STEPS,
                "s": seconds,
                "s a cell": seconds * CELL / STEPS,
            }
    snapshots = (STEPS // 10, STEPS // 3, STEPS)
    run = descent.train_batch(starts["W"], problems, optimizer=RULES["normalized"], steps=STEPS, snapshots=snapshots)
    yield line | {"ranked by": list(bias.NORMS), "s": median_seconds(lambda: bias.rank(run, problems).margin_ratio)}
