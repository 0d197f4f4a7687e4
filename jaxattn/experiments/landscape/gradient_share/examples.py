"""Hand-built shares of the gradient for which the verdict of the claim is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([1, 10, 100, 1000, 2000])


def made(slope: float, steps: np.ndarray = STEPS, seeds: int = 20, rise: float = 0.0) -> xarray.Dataset:
    """Return what `measure` would for log shares that fall with this slope, for 6 inputs and 8 tokens.

    Args:
        slope: in slack times `||W|| / ||W_mm||`.
        steps: of the snapshots.
        seeds: number of seeds.
        rise: added to all logarithms between the first and the last step.
    """
    rng = np.random.default_rng(0)
    slack = np.where(rng.random((seeds, 6, 7)) < 0.4, 0.0, rng.exponential(1.0, (seeds, 6, 7)))
    growth = np.broadcast_to(0.02 * steps, (seeds, len(steps)))
    log_share = slope * slack[:, None] * growth[:, :, None, None] - 4 + 0.1 * rng.normal(size=(seeds, len(steps), 6, 7))
    log_share += rise * np.linspace(0, 1, len(steps))[None, :, None, None]
    return xarray.Dataset(
        {
            "log_share": (("seed", "snapshot", "input", "other"), log_share),
            "slack": (("seed", "input", "other"), slack),
            "growth": (("seed", "snapshot"), growth),
        },
        {"seed": np.arange(seeds), "snapshot": steps},
        {"run": "W", "attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0},
    )


def runs(slope: float, **more: Any) -> Datasets:
    """Return the one run of the experiment."""
    return {"W": made(slope, **more)}


def of_slack() -> dict[Verdict, Datasets]:
    """The shares fall with slope -1, or with another one; or there are too few seeds."""
    return {Verdict.HOLDS: runs(-1.0), Verdict.FAILS: runs(-0.9), Verdict.OPEN: runs(-1.0, seeds=5)}
