"""Measure training: compared with other methods, with the minimal cost, and as a function of sizes."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import curve, median_seconds, rounds
from jaxattn import Problem, attention, data, descent, initial, losses
from jaxattn.descent import engines, loops, padding
from jaxattn.parallel.effort import BRIEF

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
# Sizes that are varied around (6, 8, 10) with 128 seeds, one at a time.
AROUND = {"seeds": (8, 64, 512, 4096), "d": (5, 10, 30, 100, 1000), "T": (3, 5, 9, 17), "n": (2, 4, 8, 16)}
DEVICES = (1, 2, 4, 8)


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


def scaling() -> Iterator[dict[str, Any]]:
    """Yield microseconds per instance-step for each size, with quartiles and the exponent of the last three points."""
    for name, law in LAWS.items():
        for size, values in AROUND.items():
            given = [value for value in values if name == "W" or value <= 100 or size == "seeds"]
            times = [microseconds(law, **{size: value}) for value in given]
            yield line(name, size, given, times)
        yield line(name, "devices", DEVICES, [on_devices(name, count) for count in DEVICES])


def line(name: str, size: str, values: Any, times: list[list[float]]) -> dict[str, Any]:
    """Return one line of the scaling figure."""
    middle = {"n": n, "T": T, "d": d, "seeds": 128}
    of = name.translate(str.maketrans("", "", "(), "))
    return {"of": of, "size": size, "middle": middle, **curve(values, times)}


def microseconds(law: initial.Law, seeds: int = 128, n: int = n, T: int = T, d: int = d) -> list[float]:
    """Return the microseconds per instance-step of each round, of a run that is worth optimizing."""
    if d <= 100:
        weights, problems = drawn(law, seeds, n, T, d)
    else:  # One W would take 8 MB; from W = 0 its coefficients suffice.
        B, problems = drawn(lambda key, d: jnp.zeros((n, d)), seeds, n, T, d)
        weights = attention.Spanned(B, problems.Z)
    optimizer, steps = RULES["exact direction"], 1000
    # Programs of short runs are hardly optimized, so that small sizes would seem to take longer.
    while padding.plan(descent.Rule(optimizer, steps), weights, problems, 1).effort == BRIEF:
        steps *= 2
    run = partial(descent.train_batch, weights, problems, optimizer=optimizer, steps=steps, record_every=steps // 10)
    return (1e6 * rounds(run)[:, 0] / steps / seeds).tolist()


def on_devices(name: str, count: int) -> list[float]:
    """Return the microseconds per instance-step of each round on so many virtual CPU devices, in a separate process."""
    program = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        f"from benchmarks import descent; print(descent.microseconds(descent.LAWS[{name!r}], seeds=1024))"
    )
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
    folder = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=os.environ | flags)
    return json.loads(result.stdout)
