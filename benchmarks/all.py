"""Measure the numbers that the README quotes: `python scripts/bench.py [part ...]`; default: all parts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import bias, descent, first_run, hostile, language, robustness, scaling, svm
from benchmarks.timing import ROUNDS
from jaxattn import records
from jaxattn.study.configuration import composition
from jaxattn.study.style import page

RESULTS = composition.root() / "figures" / "bench.json"


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "descent": descent.table,
    "descent-wide": descent.wide,
    "svm": svm.table,
    "robustness": robustness.robustness,
    "certainty": hostile.certainty,
    "svm-scaling": svm.scaling,
    "descent-scaling": descent.scaling,
    "atlas-cell": bias.cells,
    "language": language.table,
    "language-scaling": language.scaling,
    "first-run": first_run.published,
    "first-run-small": first_run.small,
    "first-run-sweep": first_run.sweep,
}

# Parts that are drawn, with the units of their times.
SCALINGS = {
    "svm-scaling": "milliseconds a problem",
    "descent-scaling": "microseconds a step and seed",
    "language-scaling": "milliseconds a step",
}


def main(arguments: list[str]) -> None:
    """Run the parts, print each line as it is measured, save all in figures/bench.json, and draw the scaling figures.

    Raises:
        UsageError: an unknown part.
    """
    unknown = sorted(set(arguments) - set(PARTS))
    if unknown:
        raise composition.UsageError(f"bench: expected parts among {list(PARTS)}, found {unknown}")
    # Programs compiled earlier must not shorten the timings.
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
            # Save after each line, so that an interrupted run loses none.
            records.write_json(RESULTS, results)
    for name, unit in SCALINGS.items():
        if name in results:
            page.save(scaling.draw(results[name], unit), RESULTS.parent, name)
