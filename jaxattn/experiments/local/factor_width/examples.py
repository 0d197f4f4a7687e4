"""Hand-built datasets for which the verdicts of the claims on the factor width are known."""

from __future__ import annotations

import numpy as np
import xarray
from numpy.typing import ArrayLike

from jaxattn.experiments.local.factor_width.measure import SOLUTIONS
from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([500, 1000, 2000])
# Full width, a width below all ranks, and one between them.
WIDTHS = (10, 1, 3)


def measured(
    m: int,
    reached: float = 0.999,
    best: float = 0.999,
    excess: tuple[float, float] = (0.3, 1e-10),
    seeds: int = 40,
    saturated: float = 0.9998,
    steps: ArrayLike = STEPS,
) -> xarray.Dataset:
    """Return runs of width m whose nuclear solutions alternate between rank 3 and rank 4.

    Args:
        m: columns of the factors.
        reached: correlation with the stationary point reached, where the rank is above m; each seed differs a little.
        best: correlation with the best stationary point found, where the rank is above m.
        excess: of the norm under the constraint, where the rank is above m and where it is not.
        seeds: number of seeds.
        saturated: largest probability.
        steps: the snapshots.
    """
    rank = 3 + np.arange(seeds) % 2
    binds = rank > m
    wobble = 1e-4 * np.sin(np.arange(seeds))
    of_nuclear, of_best, of_nearest = (np.where(binds, one, 0.997) + wobble for one in (0.7, best, reached))
    of_nearest += np.where(binds, 1e-4 * np.cos(np.arange(seeds)), 0.0)
    steps = np.asarray(steps)
    variables = {
        "rank": (("seed",), rank),
        "excess": (("seed",), np.where(binds, *excess)),
        "correlation": (("seed", "solution"), np.stack([of_nuclear, of_best, of_nearest], axis=1)),
        "probability": (("seed", "snapshot"), np.repeat((saturated + wobble)[:, None], len(steps), axis=1)),
    }
    attrs = {"run": f"m={m}", "width": m, "d": 10, "attempted": seeds + 1, "kept": seeds, "unsolved": 1}
    coordinates = {"seed": np.arange(seeds), "snapshot": steps, "solution": np.array(SOLUTIONS, object)}
    return xarray.Dataset(variables, coordinates, attrs | {"diverged": 0, "infeasible": 0})


def runs(
    reached: float = 0.999,
    best: float = 0.999,
    excess: tuple[float, float] = (0.3, 1e-10),
    seeds: int = 40,
    saturated: float = 0.9998,
    steps: ArrayLike = STEPS,
) -> Datasets:
    """Return runs of every width, with these numbers where the rank is above the width; arguments as in `measured`."""
    return {f"m={m}": measured(m, reached, best, excess, seeds, saturated, steps) for m in WIDTHS}


def of_binds() -> dict[Verdict, Datasets]:
    """The constraint is active where it should be; also where it should not be; or too few seeds."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(excess=(0.3, 1e-6)), Verdict.OPEN: runs(seeds=12)}


def of_reaches() -> dict[Verdict, Datasets]:
    """Descent reaches the best point; another point; none; or a correlation close to the threshold."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(best=0.8),
        Verdict.FAILS: runs(best=0.8, reached=0.9),
        Verdict.OPEN: runs(best=0.95, reached=0.95),
    }
