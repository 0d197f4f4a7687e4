"""Hand-built runs for which the verdicts of the claims on training v together with W are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

STEPS = np.array(Logarithmically(4)(4000))
RUNS = ("plain", "normalized", "falling")


def made(run: str, exponent: float, arrived: float = 1.0, seeds: int = 100) -> xarray.Dataset:
    """Return a run in which minus the logarithm of the risk is a power of the step.

    Args:
        run: the name of its steps.
        exponent: of the step.
        arrived: share of the seeds whose W ends near W_mm.
        seeds: number of seeds.
    """
    place = (np.arange(seeds) + 0.5) / seeds
    wave = 1 + 0.02 * np.resize([-1.0, 1.0], seeds)
    fallen = 0.9 * STEPS ** (wave[:, None] * exponent)
    off_W = np.where(place[:, None] < arrived, 10.0 / STEPS**1.5, 0.3)
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    values = {"fallen": fallen, "size": fallen, "off_W": np.minimum(off_W, 0.5), "off_v": 0.5 / STEPS**1.5 + 0 * fallen}
    return xarray.Dataset(
        {name: (("seed", "snapshot"), one) for name, one in values.items()},
        {"seed": np.arange(seeds), "snapshot": STEPS},
        {**counts, "run": run},
    )


def runs(exponent: float = 1.0, arrived: float = 1.0) -> Datasets:
    """Return the runs with all steps, with these numbers for the normalized ones."""
    return {
        "plain": made("plain", 0.15),
        "normalized": made("normalized", exponent, arrived),
        "falling": made("falling", 0.36),
    }


def of_risk() -> dict[Verdict, Datasets]:
    """Faster than stated; slower; or about as fast."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(0.2), Verdict.OPEN: runs(1 / 3)}


def of_directions() -> dict[Verdict, Datasets]:
    """All seeds end near both limits; half of them; or a share close to the threshold."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(arrived=0.5), Verdict.OPEN: runs(arrived=0.95)}
