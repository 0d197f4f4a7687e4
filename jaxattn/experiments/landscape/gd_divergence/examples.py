"""Hand-built datasets for which the verdicts of the claims on plain descent are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray
from numpy.typing import ArrayLike

from jaxattn.experiments.landscape.gd_divergence.measure import named
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS = 30
STEPS = np.array(Logarithmically(8)(100_000))
# Growth like log k, and 1 - cos that falls like ||W||^-2.
GROWTH = np.log(1 + STEPS)
OFF = 0.5 / (1 + GROWTH) ** 2


def run(
    step_size: float,
    growth: ArrayLike = GROWTH,
    off: ArrayLike = OFF,
    optimal: int = SEEDS,
    loss: Sequence[float] = (1.0, 0.5, 0.4),
    bend: float = 0.1,
    steps: np.ndarray = STEPS,
    every: int = 1000,
    seeds: int = SEEDS,
    stuck: int = 0,
) -> xarray.Dataset:
    """Return a run with this growth and direction, with a small spread over seeds.

    Args:
        step_size: of plain descent; the constant L is 15.
        growth: of `||W|| / ||W_mm||`, at the steps.
        off: 1 - cos, at the steps.
        optimal: number of seeds that select their optimal tokens.
        loss: the recorded risk, of every seed.
        bend: the largest second derivative.
        steps: of the snapshots.
        every: steps between recorded risks.
        seeds: number of seeds; the last 30 - `optimal` of them select other tokens.
        stuck: number of seeds that stall away from the solution.
    """
    noise = np.random.default_rng(0).normal(0, 0.02, (seeds, 1))
    along = ("seed", "snapshot")
    variables = {
        "growth": (along, (1 + noise) * np.asarray(growth)),
        "off": (along, np.where(np.arange(seeds)[:, None] < stuck, 0.5, (1 + noise) * np.asarray(off))),
        "bend": (along, np.full((seeds, len(steps)), bend)),
        "bound": (("seed",), np.full(seeds, 15.0)),
        "optimal": (("seed",), np.arange(seeds) < seeds - (SEEDS - optimal)),
        "loss": (("seed", "step"), np.tile(np.asarray(loss, float), (seeds, 1))),
    }
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    coordinates = {"seed": np.arange(seeds), "snapshot": steps, "step": np.arange(len(loss))}
    return xarray.Dataset(
        variables, coordinates, {**counts, "run": named(step_size, every), "step_size": step_size, "every": every}
    )


def runs(first: dict[str, Any] | None = None, second: dict[str, Any] | None = None) -> Datasets:
    """Return runs within 1 / L, one recorded at every step, and one with a far larger step and more seeds."""
    changed = first or {}
    made = (run(0.05, **changed), run(0.05, every=1, **changed), run(5.0, **{"seeds": 1000, **(second or {})}))
    return {one.attrs["run"]: one for one in made}


def short() -> Datasets:
    """Return runs too short to identify a logarithm."""
    few = {"growth": GROWTH[:20], "off": OFF[:20], "steps": STEPS[:20]}
    return runs(few, few)


def of_norm() -> dict[Verdict, Datasets]:
    """It grows like the logarithm, or like a power; or the run is short."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(second={"growth": STEPS**0.25}), Verdict.OPEN: short()}


def of_direction() -> dict[Verdict, Datasets]:
    """It converges to the solution, or stalls away from it; or the run is short."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(second={"off": np.full(len(STEPS), 0.1)}),
        Verdict.OPEN: short(),
    }


def of_step() -> dict[Verdict, Datasets]:
    """The risk falls, or rises with the small step; or the run is short."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs({"loss": (1.0, 1.1, 0.4)}), Verdict.OPEN: short()}
