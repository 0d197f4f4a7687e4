"""Hand-built datasets for which the verdict of the claim on feasibility is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.svm import Status

DIMENSIONS, SIZES = np.arange(1, 7), ((2, 2), (2, 5), (4, 2), (4, 5))
# The run, seed and dimension of a problem, and its new status.
Changes = Sequence[tuple[str, int, int, Status]]


def separated(n: int, T: int, seeds: int) -> xarray.Dataset:
    """Return problems of which all are feasible from half the theorem's dimension, and a quarter below it."""
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
    """Return one run per size (n, T), with single problems changed.

    Args:
        changes: run, seed, d and status of each.
        seeds: number of problems per size and dimension.
    """
    found = {one.attrs["run"]: one for one in (separated(n, T, seeds) for n, T in SIZES)}
    for run, seed, d, status in changes:
        found[run]["status"].values[seed, d - 1] = status
    for one in found.values():
        status = one["status"].values
        # The zero matrix, which stands in for a missing solution, violates every constraint by 1.
        one["violation"].values[:] = np.where(status == Status.OPTIMAL, 1e-16, 1.0)
        tally = {each: int((status == each).sum()) for each in Status}
        one.attrs |= {"attempted": status.size, "kept": tally[Status.OPTIMAL]}
        one.attrs |= {"infeasible": tally[Status.INFEASIBLE], "unsolved": tally[Status.NOT_CONVERGED]}
    return found


def theorem() -> dict[Verdict, Datasets]:
    """All problems that the theorem covers are feasible; one is not; or one could not be decided."""
    # As many infeasible problems as in the first, but one at d = 4 instead of d = 1.
    elsewhere = [("n=4 T=5", 23, 1, Status.OPTIMAL), ("n=4 T=5", 23, 4, Status.INFEASIBLE)]
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(elsewhere),
        Verdict.OPEN: runs([("n=4 T=5", 23, 4, Status.NOT_CONVERGED)]),
    }
