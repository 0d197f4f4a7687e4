"""Hand-built texts for which the verdicts of the claims on next-token prediction are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([1, 10, 100, 1000, 10_000])
# Relative spread over seeds.
_SPREAD = 0.1
# For each argument of `made`, a value that refutes and changes that leave open.
_CHANGED: dict[str, tuple[float, dict[str, Any]]] = {
    "increment": (0.1, {"increment": 0.01}),
    "error": (0.1, {"error": 0.005}),
    "growth_apart": (0.1, {"growth_apart": 0.01}),
    "both": (0.02, {"both": 0.01}),
    "sets_apart": (0.1, {"seeds": 6}),
    "midpoint": (-0.1, {"seeds": 6}),
}


def made(
    cycle: int = 3,
    starts: int = 1,
    seeds: int = 24,
    steps: np.ndarray = STEPS,
    increment: float = 1e-3,
    rate: float = 1.0,
    whole: float = 0.01,
    both: float = 0.007,
    finite: float = 1e-3,
    error: float = 1e-4,
    growth_apart: float = 1e-3,
    finite_apart: float = 1e-5,
    midpoint: float = 0.2,
    sets_apart: float = 1e-9,
) -> xarray.Dataset:
    """Return a measurement.

    Args:
        cycle: words in a cycle, 0 if all words are candidates.
        starts: per text.
        seeds: number of seeds.
        steps: of the snapshots.
        increment: 1 - cos of the change over the last decade.
        rate: its length over the expected one.
        whole: 1 - cos of W with W_svm at the end, 0.25 at the first snapshot.
        both: likewise with `W_fin + C W_svm`.
        finite: distance from W_fin at the end, 1 at the first snapshot.
        error: of a probability.
        growth_apart: 1 - cos between two starts, if there are several.
        finite_apart: between their finite parts, 1 at the start.
        midpoint: the mean risk minus the risk halfway.
        sets_apart: distance of the two solutions.
    """
    rng = np.random.default_rng(cycle + 10 * starts)
    along = np.linspace(0, 1, len(steps))[None, :]

    def spread(value: float) -> np.ndarray:
        return value * np.exp(_SPREAD * rng.normal(size=seeds))

    def path(first: float, end: float) -> np.ndarray:
        return first * (spread(end)[:, None] / first) ** along

    several = float(starts > 1)
    one_text = np.broadcast_to(np.linspace(0.1, 0.9, 3)[None, None, :], (seeds, 1, 3))
    of_seeds = {
        "increment": spread(increment),
        "rate": spread(rate),
        "error": spread(error),
        "size": np.ones(seeds),
        "midpoint": spread(midpoint),
        "within": np.full(seeds, 0.7),
        "growth_apart": several * spread(growth_apart),
        "finite_apart": several * spread(finite_apart),
        "finite_apart_0": np.full(seeds, several),
        "sets_apart": np.full(seeds, sets_apart if cycle == 0 else 0.0),
    }
    paths = {
        "whole": path(0.25, whole),
        "both": path(0.25, both),
        "growing": path(0.2, both),
        "margin": 1 - path(1.0, 0.2),
        "finite": path(1.0, finite),
    }
    probabilities = {"predicted": one_text, "reached": one_text + spread(error)[:, None, None]}
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "ambiguous": 0, "unsolved": 0}
    told = [f"cycle {cycle}, one-hot" if cycle else "all words as candidates"] + [f"{starts} starts"] * (starts > 1)
    return xarray.Dataset(
        {name: (("seed",), one) for name, one in of_seeds.items()}
        | {name: (("seed", "snapshot"), one) for name, one in paths.items()}
        | {name: (("seed", "asking", "word"), one) for name, one in probabilities.items()}
        | {
            "cyclic": (("seed", "asking", "word"), np.ones((seeds, 1, 3), bool)),
            "text": (("seed",), np.arange(seeds) // starts),
        },
        {"seed": np.arange(seeds), "snapshot": steps},
        {
            **counts,
            "cycle": cycle,
            "scale": float(starts > 1),
            "starts": starts,
            "embedding": "one-hot" if cycle else "unit-sphere",
            "rule": "plain",
            "run": ", ".join(told),
        },
    )


def runs(**changes: Any) -> Datasets:
    """Return a run with cycles, one with several starts, and one with all words as candidates, made in the same way."""
    seeds = int(changes.pop("seeds", 24))
    found = (
        made(seeds=seeds, **changes),
        made(starts=2, seeds=seeds, **changes),
        made(cycle=0, seeds=seeds, **changes),
    )
    return {one.attrs["run"]: one for one in found}


def of_run(name: str) -> dict[Verdict, Datasets]:
    """All is as predicted; one number is far off; or it is close to its threshold, or has too few seeds.

    Args:
        name: of the number.
    """
    refuting, leaving_open = _CHANGED[name]
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(**{name: refuting}),
        Verdict.OPEN: runs(**leaving_open),
    }
