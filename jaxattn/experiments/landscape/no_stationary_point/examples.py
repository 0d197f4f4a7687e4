"""Hand-built datasets for which the verdicts of the claims on the gradient's direction are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict


def run(
    spread: float,
    least: float,
    bound: float = 0.1,
    readout: float = 0.01,
    seeds: int = 24,
    draws: int = 10_000,
    bends: Sequence[float] = (),
    gradient: float = 1e-17,
) -> xarray.Dataset:
    """Return measurements at the weights of some problems, and a landscape of few points.

    Args:
        spread: of the scores.
        least: the smallest cosine of each problem, approximately.
        bound: of the proof.
        readout: the smallest cosine of `-grad L` and `v u^T`, approximately.
        seeds: number of problems, all kept.
        draws: weights per problem.
        bends: at each stationary point of the landscape, the smallest eigenvalue.
        gradient: its norm there.
    """
    noise = np.random.default_rng(0).random(seeds)
    first, second = np.linspace(-7.0, 3.0, 11), np.linspace(-3.0, 3.0, 7)
    x, y = np.meshgrid(first, second)
    own = {
        "least": (("seed",), least + 0.01 * noise),
        "negative": (("seed",), np.full(seeds, 0.1 * (least < 0))),
        "histogram": (("seed", "bin"), np.ones((seeds, 100), int)),
        "bound": (("seed",), np.full(seeds, bound)),
        "readout": (("seed",), readout + noise),
    }
    of_trap = {
        "trap_risk": (("second", "first"), 0.5 - 0.01 * y + 0.001 * (x + 3) ** 2),
        "trap_alignment": (("second", "first"), np.tanh(0.3 * x + 0.5 * y + 1)),
        "trap_place": (("point",), np.linspace(-3.0, 1.0, len(bends))),
        "trap_gradient": (("point",), np.full(len(bends), gradient)),
        "trap_least": (("point",), np.array(bends, float)),
        "trap_largest": (("point",), np.abs(np.array(bends, float)) + 0.01),
        "trap_solution": (("coordinate",), np.array([0.8, 0.6])),
    }
    coordinates = {
        "seed": np.arange(seeds),
        "bin": np.linspace(-0.99, 0.99, 100),
        "first": first,
        "second": second,
    }
    counts = {"attempted": seeds, "kept": seeds, "infeasible": 0, "unsolved": 0}
    told = {"run": f"spread of scores {spread:g}", "spread": spread, "draws": draws}
    return xarray.Dataset(own | of_trap, coordinates, counts | told)


def runs(equal: dict[str, Any] | None = None, free: dict[str, Any] | None = None) -> Datasets:
    """Return the runs of equal and of free scores with these changes; the instance has a minimum and a saddle."""
    both = (
        run(0.0, **{"least": 0.12, **(equal or {})}),
        run(1.0, **{"least": -0.2, "bends": (0.004, -0.002), **(free or {})}),
    )
    return {one.attrs["run"]: one for one in both}


def of_equal() -> dict[Verdict, Datasets]:
    """All cosines are above the bound; some are negative; or few weights were drawn."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(equal={"least": -0.12}),
        Verdict.OPEN: runs(equal={"draws": 100}),
    }


def of_needed() -> dict[Verdict, Datasets]:
    """Some cosines are negative, or none; or there are few problems."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(free={"least": 0.2}), Verdict.OPEN: runs(free={"seeds": 10})}


def of_finite() -> dict[Verdict, Datasets]:
    """The instance has a minimum and drawn problems may; drawn ones cannot; it has only saddles; or few were drawn."""
    return {
        Verdict.HOLDS: runs(free={"readout": -0.5}),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(free={"bends": (-0.004, -0.002)}),
        Verdict.OPEN: runs(free={"seeds": 10}),
    }
