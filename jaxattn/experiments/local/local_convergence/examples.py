"""Hand-built datasets for which the verdicts of the three claims are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

# The steps with snapshots, and the mean correlations there, (norm, snapshot); those for training W are the authors'.
STEPS = np.array([200, 400, 600, 800, 1000, 2000])
NORMS = ["frobenius", "nuclear"]
PUBLISHED = [[0.883, 0.960, 0.980, 0.988, 0.993, 0.995], [0.796, 0.848, 0.858, 0.861, 0.862, 0.862]]
FACTORED = [[0.7, 0.7, 0.7, 0.7, 0.7, 0.8], [0.9, 0.9, 0.9, 0.9, 0.9, 0.995]]
PROBABILITY = [0.966, *[0.98] * 4, 0.99995]
COUNTS = {"attempted": 23, "kept": 20, "diverged": 1, "infeasible": 2, "unsolved": 0}
COUNTS |= {"not_unique": 0, "uniqueness_unknown": 0}
# A change of a run: its name, a variable, the index in its means, and the new value.
Change = tuple[str, str, Any, Any]
_W_AT_REST: Change = ("W", "growth", ..., 0.0)
_KQ_AT_REST: Change = ("KQ", "growth", ..., 0.0)
_W_TO_THE_OTHER: Change = ("W", "correlation", (1, -1), 0.997)
_KQ_TO_THE_OTHER: Change = ("KQ", "correlation", ..., FACTORED[::-1])
_NOT_SATURATED: Change = ("KQ", "probability", -1, 0.9)


def runs(last: int = 2000, changed: Iterable[Change] = ()) -> Datasets:
    """Return the two runs as published, with a small spread over seeds, up to a step and with some means changed.

    Args:
        last: the step at which both runs end.
        changed: `correlation`, (norm, snapshot), or `probability`, (snapshot,), at STEPS; `growth`, the exponent p in
            ||W z|| ~ k^p, 1 unless changed.
    """
    made = {}
    for run, correlation in (("W", PUBLISHED), ("KQ", FACTORED)):
        means = {"correlation": np.array(correlation), "probability": np.array(PROBABILITY), "growth": np.array(1.0)}
        for _, name, where, value in (change for change in changed if change[0] == run):
            means[name][where] = value
        made[run] = _run(run, last, **means)
    return made


def _run(run: str, last: int, correlation: np.ndarray, probability: np.ndarray, growth: np.ndarray) -> xarray.Dataset:
    seeds, there = COUNTS["kept"], last >= STEPS
    steps = STEPS[there]
    # Of standard deviation 0.001 and mean zero, so that the means are those asked for.
    wobble = np.resize([-0.001, 0.001], seeds)
    series = np.full((seeds, last), 0.5)
    series[:, steps - 1] = probability[there] + 0.01 * wobble[:, None]
    # For each seed; the exponents are 0.02 apart.
    length = (steps / STEPS[-1]) ** (growth + 10 * wobble)[:, None]
    directions = np.random.default_rng(0).normal(size=(seeds, 1, 2, 3))
    variables = {
        "correlation": (("seed", "norm", "snapshot"), correlation[:, there] + wobble[:, None, None]),
        "probability": (("seed", "step"), series),
        "path": (("seed", "snapshot", "input", "feature"), length[:, :, None, None] * directions),
    }
    coordinates = {"seed": np.arange(seeds), "norm": np.array(NORMS, object), "snapshot": steps}
    return xarray.Dataset(variables, coordinates | {"step": np.arange(last)}, {**COUNTS, "run": run})


def of_probability() -> dict[Verdict, Datasets]:
    """Both runs saturate as published; one does not; or the runs are too short."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(changed=[_NOT_SATURATED]),
        Verdict.OPEN: runs(last=800),
    }


def of_W() -> dict[Verdict, Datasets]:
    """As published with growing weights; with weights that do not grow; the nuclear correlation ahead; or too short."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(changed=[_W_AT_REST]),
        Verdict.FAILS: runs(changed=[_W_TO_THE_OTHER]),
        Verdict.OPEN: runs(last=800),
    }


def of_KQ() -> dict[Verdict, Datasets]:
    """Near the nuclear solution, weights growing; not growing; near the Frobenius one; or too short."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(changed=[_KQ_AT_REST]),
        Verdict.FAILS: runs(changed=[_KQ_TO_THE_OTHER]),
        Verdict.OPEN: runs(last=800),
    }
