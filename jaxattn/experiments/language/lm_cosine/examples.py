"""Hand-built measurements for which the verdicts of the claims on the cosine are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([1, 3, 10, 30, 100, 300, 1000, 3000, 10_000])
# 1 - cos at the first step, and the relative spread of final values over seeds.
_START, _SPREAD = 0.3, 0.05


def made(
    soft_0: float = 1e-4,
    soft_1: float = 0.05,
    mixed: float = 0.01,
    steps: np.ndarray = STEPS,
    seeds: int = 24,
    m: int = 10,
    fall: float = 1.0,
) -> xarray.Dataset:
    """Return a measurement in which half of the texts have no conflict; 1 - cos falls from 0.3 to its final value.

    Args:
        soft_0: final value with the soft solution, for texts without a conflict.
        soft_1: the same for texts with one.
        mixed: final value with `W_fin + C W_sets`.
        steps: of the snapshots.
        seeds: number of texts.
        m: sequences per text.
        fall: power of the logarithm of the steps; 0 for a constant value.
    """
    rng = np.random.default_rng(m)
    feasible = np.arange(seeds) < seeds // 2
    along = np.linspace(0, 1, len(steps))[None, :] ** fall

    def path(end: float) -> np.ndarray:
        factors = np.exp(_SPREAD * rng.normal(size=(seeds, 1)))
        return _START * (end * factors / _START) ** along

    one = xarray.Dataset(
        {
            "feasible": (("seed",), feasible),
            "has_mixed": (("seed",), ~feasible),
            "soft": (("seed", "snapshot"), np.where(feasible[:, None], path(soft_0), path(soft_1))),
            "mixed": (("seed", "snapshot"), path(mixed)),
            "apart": (("seed",), np.zeros(seeds)),
        },
        {"seed": np.arange(seeds), "snapshot": steps},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "unsolved": 0, "m": m, "n": 5, "d": 100},
    )
    return one.assign_attrs(run=f"m={m} n=5 d=100")


def runs(**changes: Any) -> Datasets:
    """Return texts of two sizes, made in the same way."""
    sizes = made(**changes), made(m=20, **changes)
    return {one.attrs["run"]: one for one in sizes}


def of_soft(name: str) -> dict[Verdict, Datasets]:
    """All texts of a kind have converged; are converging; stall far away; or may have converged.

    Args:
        name: the parameter of `made` for their final 1 - cos.
    """
    return {
        Verdict.HOLDS: runs(**{name: 1e-4}),
        Verdict.CORRECTED: runs(**{name: 0.01}),
        Verdict.FAILS: runs(**{name: 0.28}),
        Verdict.OPEN: runs(**{name: 1e-3}),
    }


def of_mixed() -> dict[Verdict, Datasets]:
    """W is nearer to the limit of several tokens; nearer to the soft solution; or equally near to both."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(mixed=0.06),
        Verdict.OPEN: runs(mixed=0.05),
    }
