"""Measure what the README quotes: batched descent beside a one-seed-at-a-time loop, and the SVM solvers."""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from jaxattn import attention, batch, data, descent, initial, svm, tokens

SEEDS, STEPS, ROUNDS, ALONE = 100, 2000, 5, 5


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
    constraints = batch.over_seeds(svm.token_constraints, problems, batch.over_seeds(tokens.optimal, problems))
    one = svm.Constraints(*(leaf[0] for leaf in constraints))
    for norm in ("frobenius", "nuclear"):
        batched = median_seconds(lambda norm=norm: svm.solve_batch(constraints, norm)) / SEEDS
        clarabel = median_seconds(lambda norm=norm: svm.solve(one, norm, solver=svm.Cvxpy()))
        largest = np.abs(svm.solve_batch(constraints, norm).gap).max()
        print(
            f"{norm} SVM, {SEEDS} problems: {1e3 * batched:.2f} ms each, largest gap {largest:.1e}; "
            f"CVXPY with Clarabel {1e3 * clarabel:.0f} ms; ratio {clarabel / batched:.0f}"
        )


if __name__ == "__main__":
    main()
