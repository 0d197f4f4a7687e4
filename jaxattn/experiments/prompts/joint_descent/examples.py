"""Hand-built joint trainings for which the verdicts of the claims are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([20, 200, 2000, 20_000])
_RUNS = (("p", 1.0), ("W", 0.1), ("W", 1.0), ("W", 10.0))


def run(
    trained: str,
    tau: float,
    seeds: int = 200,
    unrelaxed: float = 0.05,
    relaxed: float = 0.05,
    offset: float = 1e-5,
    whole: float = 1e-5,
    head: float = 1e-5,
) -> xarray.Dataset:
    """Return a run in which half of the seeds have inputs that are not support vectors.

    Args:
        trained: "p" or "W".
        tau: the temperature.
        seeds: number of seeds.
        unrelaxed: final 1 - cos with that solution, in mixed seeds.
        relaxed: the same.
        offset: the same.
        whole: 1 - cos with all solutions, which coincide, in the other seeds.
        head: 1 - cos of v.
    """
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], seeds)[:, None]
    mixed = np.arange(seeds) % 4 < 2
    ends = np.where(mixed[:, None], np.array([unrelaxed, relaxed, offset]), whole) * spread
    falling = np.minimum(STEPS[-1] / STEPS, 20.0)
    support = np.ones((seeds, 4), bool)
    support[mixed, 0] = False
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    return xarray.Dataset(
        {
            "off": (("seed", "problem", "snapshot"), np.clip(ends[:, :, None] * falling, -1.0, 1.0)),
            "off_v": (("seed", "snapshot"), np.clip(head * spread * falling, -1.0, 1.0)),
            "margin_ratio": (("seed", "snapshot"), np.full((seeds, len(STEPS)), 0.7)),
            "support": (("seed", "input"), support),
            "growing": (("seed",), np.ones(seeds)),
        },
        {"seed": np.arange(seeds), "problem": np.array(["unrelaxed", "relaxed", "offset"], object), "snapshot": STEPS},
        {"run": f"{trained} and v, tau = {tau:g}", "trained": trained, "tau": tau, **counts},
    )


def runs(trained: str = "pW", **changes: Any) -> Datasets:
    """Return all runs, with changes for those of p, of W or of both."""
    every = [run(one, tau, **(changes if one in trained else {})) for one, tau in _RUNS]
    return {one.attrs["run"]: one for one in every}


def of_head() -> dict[Verdict, Datasets]:
    """The head ends at its solution, or far from it; or there are too few seeds."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(head=0.1), Verdict.OPEN: runs(seeds=6)}


def of_support() -> dict[Verdict, Datasets]:
    """The prompt ends at its solution, or far from it; or there are too few seeds."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(whole=0.1), Verdict.OPEN: runs(seeds=6)}


def _of_relaxed(trained: str) -> dict[Verdict, Datasets]:
    return {
        Verdict.HOLDS: runs(trained, relaxed=1e-5, offset=0.05),
        Verdict.CORRECTED: runs(trained),
        Verdict.FAILS: runs(trained, unrelaxed=1e-5, offset=0.05),
        Verdict.OPEN: runs(trained, seeds=6),
    }


def of_prompt() -> dict[Verdict, Datasets]:
    """The prompt ends at the relaxed solution, the one with offsets, or the unrelaxed one; or too few seeds."""
    return _of_relaxed("p")


def of_weights() -> dict[Verdict, Datasets]:
    """The same for W."""
    return _of_relaxed("W")
