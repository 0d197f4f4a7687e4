"""Hand-built runs of plain descent for which the verdicts of the claims on the theorems are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS = 30
STEPS = np.array(Logarithmically(8)(100_000))
# The norm of W over that of the solution, and a direction error, 1 - cos, that falls like its inverse square, at STEPS.
GROWTH = np.log(1 + STEPS)
OFF = 0.9 / (1 + GROWTH) ** 2
# Constant errors, near the solution and far from it; and one that ends at the threshold.
NEAR, _FAR, EDGE = 0.01 + 0 * OFF, 0.07 + 0 * OFF, 0.02 * OFF / OFF[-1]
# The deltas and step sizes of the runs.
RUNS = ((0.0, 0.8), (0.0, 50.0), (0.5, 0.8), (0.5, 50.0))


def made(
    delta: float,
    step_size: float,
    steps: np.ndarray = STEPS,
    feasible: int = 15,
    growth: np.ndarray = GROWTH,
    chosen: float = 1.0,
    least: int = SEEDS,
    loss: Sequence[float] = (1.0, 0.5),
    bound: float = 0.6,
    off: np.ndarray = OFF,
    tied: np.ndarray = OFF,
    soft: np.ndarray = _FAR,
) -> xarray.Dataset:
    """Return 30 texts with these values, with a small spread over seeds.

    Args:
        delta: of the scores.
        step_size: of descent.
        steps: of the snapshots.
        feasible: number of feasible texts.
        growth: the norm of W.
        chosen: share of the next words selected in the first text; all are in the others.
        least: number of texts that keep the words of least risk.
        loss: recorded risk.
        bound: the smoothness constant L.
        off: from the hard-margin solution, for feasible texts.
        tied: from the tied one, for the others.
        soft: from the soft one, for the others.
    """
    count, along, fits = len(steps), ("seed", "snapshot"), np.arange(SEEDS) < feasible
    rng = np.random.default_rng(0)
    noise = 1 + rng.normal(0, 0.02, (3, SEEDS, 1))
    # Seeds also differ in their rate of convergence.
    tilt = np.exp(rng.normal(0, 0.02, (SEEDS, 1)) * np.linspace(1, 0, len(STEPS)))[:, :count]
    errors = np.where(fits[:, None], off[None, :count], tied[None, :count])
    of_soft = np.where(fits[:, None], errors, soft[None, :count])
    variables = {
        "feasible": (("seed",), fits),
        "off": (along, noise[0] * tilt * errors),
        "off_soft": (along, np.where(fits[:, None], noise[0], noise[1]) * tilt * of_soft),
        "growth": (along, noise[2] * growth[None, :count]),
        "least": (("seed",), np.arange(SEEDS) < least),
        "apart": (("seed",), np.where(fits, 0.0, 0.06)),
        "bound": (("seed",), np.full(SEEDS, bound)),
        "chosen": (("seed",), np.where(np.arange(SEEDS) == 0, chosen, 1.0)),
        "choosable": (("seed",), np.ones(SEEDS)),
        "loss": (("seed", "step"), noise[0] * np.asarray(loss)),
    }
    attrs = {"run": f"delta {delta:g}, step {step_size:g}", "step_size": step_size, "delta": delta}
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "ambiguous": 0, "unsolved": 0}
    coordinates = {"seed": np.arange(SEEDS), "snapshot": steps, "step": np.arange(len(loss))}
    return xarray.Dataset(variables, coordinates, attrs | counts)


def runs(changed: Mapping[tuple[float, float], Mapping[str, Any]] | None = None, **every: Any) -> Datasets:
    """Return the four runs of the experiment.

    Args:
        changed: arguments to change, by delta and step size of the run.
        every: arguments to change in every run.
    """
    found = [made(*one, **{**every, **(changed or {}).get(one, {})}) for one in RUNS]
    return {one.attrs["run"]: one for one in found}


def of_soft() -> dict[Verdict, Datasets]:
    """Descent converges to the soft solution; it stays away; or the end is close to the threshold."""
    return {
        Verdict.HOLDS: runs(soft=OFF),
        Verdict.FAILS: runs(),
        Verdict.OPEN: runs(soft=EDGE),
    }


def of_tied() -> dict[Verdict, Datasets]:
    """Descent converges to the tied solution of least risk; a text keeps other words; it stays away; or undecided."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs({(0.5, 50.0): {"least": SEEDS - 1}}),
        Verdict.FAILS: runs({(0.5, 50.0): {"tied": _FAR}}),
        Verdict.OPEN: runs({(0.5, 50.0): {"tied": EDGE}}),
    }


def of_step() -> dict[Verdict, Datasets]:
    """The risk falls; it rises; or even the smallest step is beyond the bound."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs({(0.0, 0.8): {"loss": (1.0, 1.1)}}),
        Verdict.OPEN: runs(bound=1.3),
    }
