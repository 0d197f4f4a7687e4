"""Measure a cell of the atlas, 100 seeds trained and ranked by five norms, and one head of an attention layer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
# Sequences, tokens and d of one head: 120 or 496 rows for each sequence.
HEADS = ((4, 16, 16), (8, 16, 32), (16, 16, 64), (10, 32, 64))


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


def heads() -> Iterator[dict[str, Any]]:
    """Yield the seconds of one head with its nulls, by size and norm."""
    for sequences, T, d in HEADS:
        rng = np.random.default_rng(0)
        hidden, (W_Q, W_K) = rng.normal(size=(sequences, T, d)), rng.normal(size=(2, 1, d, d))
        for norm in ("frobenius", "nuclear"):
            line = {"rows": sequences * T * (T - 1) // 2, "d": d, "norm": norm}
            yield line | {"s": median_seconds(partial(bias.heads, hidden, W_Q, W_K, norms=(norm,)))}
