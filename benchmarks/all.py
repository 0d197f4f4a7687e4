"""Measure what the README quotes: `python scripts/bench.py [part ...]`, all parts by default."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks import descent, hostile, language, robustness, scaling, svm
from benchmarks.timing import ROUNDS
from jaxattn import records
from jaxattn.study.configuration import composition
from jaxattn.study.style import page

RESULTS = composition.root() / "figures" / "bench.json"


def figures() -> Iterator[dict[str, Any]]:
    """Yield the seconds of `jaxattn figures` in a process of its own, nothing compiled before and then again."""
    command = [sys.executable, "-m", "jaxattn.study", "figures"]
    with tempfile.TemporaryDirectory() as place:
        for size in ("small", "published"):
            compiled = {"JAX_COMPILATION_CACHE_DIR": str(Path(place) / size), "JAX_ENABLE_COMPILATION_CACHE": "1"}
            for run in ("nothing compiled", "compiled programs kept"):
                folders = [f"{name}={Path(place) / size / run.split()[0] / name}" for name in ("runs", "figures")]
                started = time.perf_counter()
                overrides = [f"size={size}", *folders]
                subprocess.run([*command, *overrides], check=True, capture_output=True, env=os.environ | compiled)
                yield {"all figures": run, "size": size, "seconds": time.perf_counter() - started}


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "descent": descent.table,
    "svm": svm.table,
    "robustness": robustness.robustness,
    "certainty": hostile.certainty,
    "svm-scaling": svm.scaling,
    "descent-scaling": descent.scaling,
    "language": language.table,
    "language-scaling": language.scaling,
    "figures": figures,
}

# Parts that are drawn, each with the unit of its times.
SCALINGS = {
    "svm-scaling": "milliseconds a problem",
    "descent-scaling": "microseconds a step and seed",
    "language-scaling": "milliseconds a step",
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
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {name: known[name] for name in PARTS if name in known}
    results["machine"] = machine
    for name in arguments or PARTS:
        results[name] = []
        for line in PARTS[name]():
            print(f"{name}: {json.dumps(line)}", flush=True)
            results[name].append(line)
        records.write_json(RESULTS, results)
    for name, unit in SCALINGS.items():
        if name in results:
            page.save(scaling.draw(results[name], unit), RESULTS.parent, name)
