"""Measure what the README quotes: batched descent beside a one-seed-at-a-time loop, and the SVM solvers."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax

from jaxattn import attention, batch, data, descent, initial, svm, tokens

SEEDS, STEPS, ROUNDS, ALONE = 100, 2000, 5, 5
PROBLEMS, WITNESSED = 1000, 5
# n, T, d of the SVM problems.
SHAPES = ((6, 8, 10), (5, 10, 50), (10, 5, 20))


def median_seconds(run: Callable[[], object]) -> float:
    """Return the median of several timed calls, after one that compiles."""
    run()
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def descents(problems: object, weights: attention.Weights) -> tuple[float, float]:
    """Return instance-steps a second of the batch, and of one seed at a time (both compiled)."""
    together = median_seconds(lambda: descent.train_batch(weights, problems, steps=STEPS))  # pyright: ignore[reportArgumentType]

    def one_at_a_time() -> None:
        for seed in range(ALONE):
            lane = jax.tree.map(lambda leaf, seed=seed: leaf[seed], (weights, problems))
            jax.block_until_ready(descent.train(*lane, steps=STEPS))

    return SEEDS * STEPS / together, ALONE * STEPS / median_seconds(one_at_a_time)


def main() -> None:
    """Print every figure with its size and the ratio to the slower way."""
    jax.config.update("jax_enable_x64", True)
    print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, float64, medians of {ROUNDS} rounds")
    keys = jax.random.split(jax.random.key(0), (2, SEEDS))
    problems = jax.jit(jax.vmap(partial(data.sphere, n=6, T=8, d=10)))(keys[0])
    for name, law in (("W", initial.full), ("(K, Q)", initial.factored)):
        weights = jax.jit(jax.vmap(partial(law, d=10)))(keys[1])
        together, alone = descents(problems, weights)
        print(
            f"descent on {name}, (n, T, d) = (6, 8, 10), {SEEDS} seeds: {together:,.0f} instance-steps a second; "
            f"one seed at a time {alone:,.0f}; ratio {together / alone:.1f}"
        )
    for shape in SHAPES:
        for norm in ("frobenius", "nuclear"):
            print(f"{norm} SVM, (n, T, d) = {shape}, {PROBLEMS} problems: {solved(shape, norm)}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        cold, warm = (figures_seconds(Path(place), run) for run in ("cold", "warm"))
    print(f"figures.py at published sizes: {cold:.0f} s; with compiled programs kept from an earlier run {warm:.0f} s")


def solved(shape: tuple[int, int, int], norm: str) -> str:
    """Describe the time of a batch of problems, an instance each, beside CVXPY's default solver."""
    n, T, d = shape
    keys = jax.random.split(jax.random.key(1), PROBLEMS)
    problems = jax.jit(jax.vmap(partial(data.sphere, n=n, T=T, d=d)))(keys)
    constraints = batch.over_seeds(svm.token_constraints, problems, batch.over_seeds(tokens.optimal, problems))
    ours = median_seconds(lambda: svm.solve_batch(constraints, norm)) / PROBLEMS
    solution = svm.solve_batch(constraints, norm)
    optimal = solution.status == svm.Status.OPTIMAL
    theirs = []
    # The largest nuclear problem takes Clarabel half a minute.
    for i in range(WITNESSED if norm == "frobenius" or d <= 20 else 1):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], constraints)
        started = time.perf_counter()
        svm.solve(one, norm, solver=svm.Cvxpy())
        theirs.append(time.perf_counter() - started)
    clarabel = statistics.median(theirs)
    return (
        f"{1e3 * ours:.2f} ms each, {optimal.sum()} certified optimal, largest gap {solution.gap[optimal].max():.1e}; "
        f"CVXPY with Clarabel {1e3 * clarabel:,.0f} ms (median of {len(theirs)}); ratio {clarabel / ours:,.0f}"
    )


def figures_seconds(place: Path, run: str) -> float:
    """Return the seconds of `scripts/figures.py` in a process of its own; compiled programs are kept in `place`."""
    figures = str(Path(__file__).with_name("figures.py"))
    command = [sys.executable, figures, f"runs={place / run / 'runs'}", f"figures={place / run / 'figures'}"]
    kept = {"JAX_COMPILATION_CACHE_DIR": str(place / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | kept)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
