"""Hand-built shares for which the verdicts of the claims on sparse gradients are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

SEEDS = 30
STEPS = np.array(Logarithmically(4)(10_000))
# The share of pairs that carry the gradient, and the part of it on other pairs, at STEPS.
FALLING, LEVEL = 0.98 - 0.15 * np.log10(STEPS), np.full(len(STEPS), 0.98)
LEFT = 0.3 / STEPS


def made(
    run: str = "vocabulary, d = 10",
    steps: np.ndarray = STEPS,
    feasible: int = 15,
    share: np.ndarray = FALLING,
    other: np.ndarray = FALLING,
    limit: float = 0.38,
    left: np.ndarray = LEFT,
) -> xarray.Dataset:
    """Return 30 texts with these values, with a small spread over seeds.

    Args:
        run: candidates and d.
        steps: of the snapshots.
        feasible: number of feasible texts.
        share: of the pairs that carry the gradient, for feasible texts.
        other: the same for the others.
        limit: of the share, by the multipliers.
        left: part of the gradient not on support vectors or contested words.
    """
    noise, along = np.random.default_rng(0).normal(0, 0.004, (SEEDS, 1)), ("seed", "snapshot")
    fits, count = np.arange(SEEDS) < feasible, len(steps)
    variables = {
        "feasible": (("seed",), fits),
        "share": (along, noise + np.where(fits[:, None], share[None, :count], other[None, :count])),
        "beside": (along, (1 + noise) * left[None, :count]),
        "limit": (("seed",), np.full(SEEDS, limit)),
        "core": (("seed",), np.full(SEEDS, 0.4)),
        "pairs": (("seed",), np.full(SEEDS, 450.0)),
        "dropped": (("seed",), np.full(SEEDS, 9.0)),
    }
    candidates, _, d = run.partition(", d = ")
    attrs = {"run": run, "candidates": candidates, "d": int(d), "prefixes": 45}
    counts = {"attempted": SEEDS, "kept": SEEDS, "diverged": 0, "unsolved": 0}
    return xarray.Dataset(variables, {"seed": np.arange(SEEDS), "snapshot": steps}, attrs | counts)


def runs(both: bool = False, **changes: Any) -> Datasets:
    """Return two runs, with changes in the second one or in both."""
    first = made(**changes) if both else made()
    second = made("prefix, d = 100", **changes)
    return {one.attrs["run"]: one for one in (first, second)}


def of_few() -> dict[Verdict, Datasets]:
    """Few carry the gradient everywhere; in some runs; nowhere; or close to half do for one kind of text."""
    rng = np.random.default_rng(1)
    first, second = runs().values()
    scattered = second["share"].values.copy()
    change = rng.normal(0, 0.01, SEEDS - 15)
    scattered[15:, -1] = 0.5 + change - change.mean()
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(share=LEVEL),
        Verdict.FAILS: runs(both=True, share=LEVEL, other=LEVEL),
        Verdict.OPEN: {
            first.attrs["run"]: first,
            second.attrs["run"]: second.assign(share=(second["share"].dims, scattered)),
        },
    }


def of_support() -> dict[Verdict, Datasets]:
    """Support vectors carry the gradient; other pairs carry some too; or close to the allowed amount."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(left=0.02 + LEFT),
        Verdict.OPEN: runs(left=0.01 + 0 * LEFT),
    }
