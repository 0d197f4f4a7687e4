"""Measure the numbers that the README quotes: `python scripts/bench.py [part ...]`; default: all parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import accelerator, bias, descent, first_run, history, hostile, language, robustness, svm
from benchmarks.timing import ROUNDS, processor
from jaxattn import records
from jaxattn.study.configuration.names import root
from jaxattn.study.mistakes import UsageError
from jaxattn.study.style import page

RESULTS = root() / "figures" / "bench.json"
HISTORY = root() / "figures" / "bench-history.json"


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "descent": descent.table,
    "descent-wide": descent.wide,
    "svm": svm.table,
    "svm-norms": svm.norms,
    "svm-rows": svm.many_rows,
    "robustness": robustness.robustness,
    "certainty": hostile.certainty,
    "atlas-cell": bias.cells,
    "heads": bias.heads,
    "language": language.table,
    "first-run": first_run.first,
    "first-run-small": first_run.small,
    "first-run-published": first_run.published,
    "accelerator": accelerator.table,
}
# The parts that need a GPU or TPU; without one, what was measured before is kept.
ON_ACCELERATORS = {"accelerator"}


def main(arguments: list[str]) -> None:
    """Run the parts, print each line as it is measured, and save all in figures/bench.json.

    The ratios to other programs are added to figures/bench-history.json; those that fell are printed.
    """
    parts = arguments or _all()
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise UsageError(f"bench: expected parts among {list(PARTS)}, found {unknown}")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {name: known[name] for name in ("machine", *PARTS) if name in known}
    print(machine := _prepared())
    for name in parts:
        results[name] = []
        results.setdefault("machine", {})[name] = machine
        for line in PARTS[name]():
            print(f"{name}: {json.dumps(line)}", flush=True)
            results[name].append(line)
            # Save after each line, so that an interrupted run loses none.
            records.write_json(RESULTS, results)
        for lost in history.added(HISTORY, first_run.commit_of(), machine, results[name]):
            print(f"slower: {lost}", flush=True)
    if entries := history.read(HISTORY):
        page.save(history.draw(entries), HISTORY.parent, HISTORY.stem)


def _all() -> list[str]:
    if jax.default_backend() != "cpu":
        return list(PARTS)
    skipped = ", ".join(sorted(ON_ACCELERATORS))
    print(f"bench: no GPU or TPU here; not measured again: {skipped}", file=sys.stderr)
    return [name for name in PARTS if name not in ON_ACCELERATORS]


def _prepared() -> str:
    # Programs compiled earlier must not shorten the timings.
    jax.config.update("jax_enable_compilation_cache", False)
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    kind = "" if device.platform == "cpu" else f"{device.device_kind}, "
    return f"{kind}{processor()}, float64, medians of {ROUNDS} rounds"
