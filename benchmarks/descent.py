"""Measure training: compared with other methods, with the minimal cost, and as a function of sizes."""

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import median_seconds
from jaxattn import Problem, attention, data, descent, initial, losses
from jaxattn.descent import engines, loops

SEEDS, STEPS = 1000, 2000
n, T, d = 6, 8, 10
RULES = {
    "as published": descent.normalized_gd(0.1),
    "exact direction": descent.normalized_gd(0.1, 0.0, 0.0),
    "plain": descent.gd(0.1),
}
LAWS = {"W": initial.free, "(K, Q)": initial.factored}
# Sizes whose steps are matrix products, with fewer seeds and steps.
WIDE, WIDE_SEEDS, WIDE_STEPS = ((5, 10, 80), (10, 5, 40), (15, 5, 80)), 256, 500


def drawn(law: initial.Law, seeds: int, n: int = n, T: int = T, d: int = d) -> tuple[Any, Problem]:
    """Return initial weights and problems."""
    keys = jax.random.split(jax.random.key(0), (2, seeds))
    problems = jax.jit(jax.vmap(partial(data.sphere, n=n, T=T, d=d)))(keys[0])
    return jax.jit(jax.vmap(lambda key: law(key, d)))(keys[1]), problems


def table() -> Iterator[dict[str, Any]]:
    """Yield instance-steps per second for (6, 8, 10) with both rules, of other methods, and relative to the maximum."""
    multiply_adds, exponentials = rates()
    for name, law in LAWS.items():
        weights, problems = drawn(law, SEEDS)
        others = alternatives(weights, problems)
        for rule, optimizer in RULES.items():
            run = partial(descent.train_batch, weights, problems, optimizer=optimizer, steps=STEPS)
            quiet = SEEDS * STEPS / median_seconds(partial(run, record_every=STEPS))
            speed = SEEDS * STEPS / median_seconds(run)
            single = jax.tree.map(lambda leaf: leaf.astype(np.float32), (weights, problems))
            train = partial(descent.train_batch, *single, optimizer=optimizer, steps=STEPS)
            floor = operations(name) / multiply_adds + 2 * n * T / exponentials
            yield {
                "weights": name,
                "rule": rule,
                "instance-steps a second": speed,
                "recording costs": quiet / speed - 1,
                "single precision": SEEDS * STEPS / median_seconds(train),
                "compilation s": compilation(law, optimizer),
                "share of the floor": floor * speed,
                "others": others,
                "ratios": {other: speed / value for other, value in others.items()},
            }


def wide() -> Iterator[dict[str, Any]]:
    """Yield instance-steps per second of wide steps, as published, of a vmapped scan, and relative to the maximum."""
    multiply_adds, exponentials = rates()
    optimizer = RULES["as published"]
    for name, law in LAWS.items():
        for sizes in WIDE:
            weights, problems = drawn(law, WIDE_SEEDS, *sizes)
            train = partial(descent.train_batch, weights, problems, optimizer=optimizer, steps=WIDE_STEPS)
            speed = WIDE_SEEDS * WIDE_STEPS / median_seconds(partial(train, record_every=WIDE_STEPS))
            run = jax.jit(jax.vmap(partial(naive, steps=WIDE_STEPS)))
            other = WIDE_SEEDS * WIDE_STEPS / median_seconds(partial(run, weights, problems))
            one = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
            of_step = engines.chosen(optimizer.update, *one)[1].multiply_adds
            yield {
                "weights": name,
                "(n, T, d)": sizes,
                "multiply-adds a step": of_step,
                "instance-steps a second": speed,
                "share of the floor": speed * (of_step / multiply_adds + 2 * sizes[0] * sizes[1] / exponentials),
                "vmapped scan": other,
                "ratio": speed / other,
            }


def alternatives(weights: Any, problems: Problem) -> dict[str, float]:
    """Return instance-steps per second of alternatives that a user could write, with the published rule."""
    one = jax.tree.map(lambda leaf: leaf[0], (weights, problems))
    run = jax.jit(jax.vmap(naive))
    found = {
        "vmapped scan": SEEDS * STEPS / median_seconds(partial(run, weights, problems)),
        "one seed, compiled scan": STEPS / median_seconds(partial(jax.jit(naive), *one)),
        "one seed, compiled step": STEPS / median_seconds(partial(step_by_step, *one)),
    }
    if importlib.util.find_spec("torch") is None:
        print("descent: PyTorch is not installed (the extra `bench` has it): its loop is not timed", file=sys.stderr)
        return found
    from benchmarks import pytorch

    steps = STEPS // 10
    return found | {"one seed, PyTorch loop": steps / median_seconds(partial(pytorch.loop, *one, steps))}


def updated(weights: Any, problem: Problem) -> tuple[Any, jax.Array]:
    """Make one published step, written like the papers' formulas, and return weights and loss."""
    risk, slope = jax.value_and_grad(losses.risk)(weights, problem)
    epsilon = descent.PUBLISHED_EPSILON
    if isinstance(weights, attention.Factored):
        slope = jax.tree.map(lambda g, w: g + 2 * epsilon * w, slope, weights)
    moved = jax.tree.map(lambda w, g: w - 0.1 * g / (jnp.linalg.norm(g) + epsilon), weights, slope)
    return moved, risk


def naive(weights: Any, problem: Problem, steps: int = STEPS) -> Any:
    """Train one seed with a plain scan over automatic differentiation."""
    return jax.lax.scan(lambda w, _: updated(w, problem), weights, length=steps)


one_step = jax.jit(updated)


def step_by_step(weights: Any, problem: Problem) -> Any:
    """Train one seed with a Python loop over a compiled step."""
    for _ in range(STEPS):
        weights, _ = one_step(weights, problem)
    return weights


def operations(weights: str) -> int:
    """Return the multiply-adds per step at (n, T, d): logits, gradient, and update of what is kept."""
    if weights == "W":
        return 2 * n * T * d + n * n * d
    return 2 * n * T * d + 5 * n * d * d


def rates() -> tuple[float, float]:
    """Return what all cores compute per second: multiply-adds in a matrix product, and exponentials of a vector.

    Measured with NumPy, whose libraries are tuned for the processor, independently of XLA's options.
    """
    A, x = np.ones((1024, 1024)), np.linspace(-5.0, 0.0, 4096)
    y = np.empty_like(x)

    def many() -> None:
        for _ in range(2000):
            np.exp(x, out=y)

    cores = os.cpu_count() or 1
    return 1024**3 / median_seconds(lambda: A @ A), cores * 2000 * 4096 / median_seconds(many)


def compilation(law: initial.Law, optimizer: Any) -> float:
    """Return the seconds of tracing and compiling a run."""
    weights, problems = drawn(law, 64)
    loops.trainer.cache_clear()
    run = partial(descent.train_batch, weights, problems, optimizer=optimizer, steps=3, snapshots=(1, 2))
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    started = time.perf_counter()
    run()
    return first - (time.perf_counter() - started)
