"""Measure what the README quotes: `python scripts/bench.py [part ...]`, all parts by default."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bench_robustness
import bench_svm
import composition
import jax
from timing import ROUNDS, median_seconds

from jaxattn import attention, data, descent, initial, records
from jaxattn.plots import page, scaling

SEEDS, STEPS, ALONE = 100, 2000, 5
RESULTS = composition.ROOT / "figures" / "bench.json"


def descents() -> Iterator[dict[str, Any]]:
    """Yield instance-steps a second of a batch, and of one seed at a time (both compiled)."""
    keys = jax.random.split(jax.random.key(0), (2, SEEDS))
    problems = jax.jit(jax.vmap(partial(data.sphere, n=6, T=8, d=10)))(keys[0])
    for name, law in (("W", initial.full), ("(K, Q)", initial.factored)):
        weights = jax.jit(jax.vmap(partial(law, d=10)))(keys[1])
        together = SEEDS * STEPS / median_seconds(partial(descent.train_batch, weights, problems, steps=STEPS))
        alone = ALONE * STEPS / median_seconds(partial(one_at_a_time, weights, problems))
        yield {
            "weights": name,
            "instance-steps a second": together,
            "one seed at a time": alone,
            "ratio": together / alone,
        }


def one_at_a_time(weights: attention.Weights, problems: Any) -> None:
    """Train a few seeds one after the other."""
    for seed in range(ALONE):
        lane = jax.tree.map(lambda leaf, seed=seed: leaf[seed], (weights, problems))
        jax.block_until_ready(descent.train(*lane, steps=STEPS))


def figures() -> Iterator[dict[str, Any]]:
    """Yield the seconds of `scripts/figures.py` in a process of its own, nothing compiled before and then again."""
    command = [sys.executable, str(composition.ROOT / "scripts" / "figures.py")]
    with tempfile.TemporaryDirectory() as place:
        kept = {"JAX_COMPILATION_CACHE_DIR": str(Path(place) / "compiled"), "JAX_ENABLE_COMPILATION_CACHE": "1"}
        for run in ("nothing compiled", "compiled programs kept"):
            folders = [f"{name}={Path(place) / run.split()[0] / name}" for name in ("runs", "figures")]
            started = time.perf_counter()
            subprocess.run([*command, *folders], check=True, capture_output=True, env=os.environ | kept)
            yield {"all figures": run, "seconds": time.perf_counter() - started}


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "descent": descents,
    "svm": bench_svm.table,
    "robustness": bench_robustness.robustness,
    "scaling": bench_svm.scaling,
    "figures": figures,
}


def main(arguments: list[str]) -> None:
    """Run the parts, print each line as it is measured, keep all in figures/bench.json, draw the scaling figure.

    Raises:
        UsageError: an unknown part.
    """
    unknown = sorted(set(arguments) - set(PARTS))
    if unknown:
        raise composition.UsageError(f"bench: expected parts among {list(PARTS)}, found {unknown}")
    # What was compiled before must not shorten the timings.
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_enable_x64", True)
    machine = f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, float64, medians of {ROUNDS} rounds"
    print(machine)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = machine
    for name in arguments or PARTS:
        results[name] = []
        for line in PARTS[name]():
            print(f"{name}: {json.dumps(line)}", flush=True)
            results[name].append(line)
        records.write_json(RESULTS, results)
    if "scaling" in results:
        page.save(scaling.draw(results["scaling"]), RESULTS.parent, "svm-scaling")


if __name__ == "__main__":
    composition.entry(main)
