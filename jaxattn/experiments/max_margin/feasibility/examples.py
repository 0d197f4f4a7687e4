"""Measured datasets built by hand: what the claim on feasibility has to say of them is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.svm import Status

DIMENSIONS, SIZES = np.arange(1, 7), ((2, 2), (2, 5), (4, 2), (4, 5))
# Problems by their run, seed and dimension, and what they become.
Changes = Sequence[tuple[str, int, int, Status]]


def separated(n: int, T: int, seeds: int) -> xarray.Dataset:
    """Return problems that are all feasible from half the theorem's dimension on, below it a quarter of them."""
    status = np.full((seeds, len(DIMENSIONS), 1), Status.OPTIMAL)
    too_small = np.asarray([2 * d < max(T - 1, n) for d in DIMENSIONS])
    status[seeds // 4 :, too_small] = Status.INFEASIBLE
    axes = ("seed", "d", "norm")
    return xarray.Dataset(
        {"status": (axes, status), "violation": (axes, np.zeros(status.shape))},
        {"seed": np.arange(seeds), "d": DIMENSIONS, "norm": np.array(["frobenius"], dtype=object)},
        {"run": f"n={n} T={T}", "solver": "", "n": n, "T": T},
    )


def runs(changes: Changes = (), seeds: int = 24) -> Datasets:
    """Return one run a size (n, T), with single problems changed.

    Args:
        changes: run, seed, d and status of each.
        seeds: how many problems a size and dimension.
    """
    found = {one.attrs["run"]: one for one in (separated(n, T, seeds) for n, T in SIZES)}
    for run, seed, d, status in changes:
        found[run]["status"].values[seed, d - 1] = status
    for one in found.values():
        status = one["status"].values
        # The zero matrix, which stands where there is no solution, violates every constraint by 1.
        one["violation"].values[:] = np.where(status == Status.OPTIMAL, 1e-16, 1.0)
        tally = {each: int((status == each).sum()) for each in Status}
        one.attrs |= {"attempted": status.size, "kept": tally[Status.OPTIMAL]}
        one.attrs |= {"infeasible": tally[Status.INFEASIBLE], "unsolved": tally[Status.NOT_CONVERGED]}
    return found


def theorem() -> dict[Verdict, Datasets]:
    """All problems that the theorem covers are feasible; one is not; or one could not be decided."""
    # As many infeasible problems as in the first, one of them at d = 4 in place of d = 1.
    elsewhere = [("n=4 T=5", 23, 1, Status.OPTIMAL), ("n=4 T=5", 23, 4, Status.INFEASIBLE)]
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(elsewhere),
        Verdict.OPEN: runs([("n=4 T=5", 23, 4, Status.NOT_CONVERGED)]),
    }
