"""Compare long runs with each max-margin solution, snapshot by snapshot."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.attention import Factored
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.settings.parameters import weights_of

# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16
_KEPT = ("status", "gap", "violation", "selected", "margin_ratio", "probability", "off", "size", "balance")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run of a `Training` with its max-margin solutions, and keep what a figure over many runs needs.

    Factors narrower than the tokens are also compared with the nuclear solution of their rank.

    Returns:
        Of `compare`, what needs no paths; `margin_ratio` is missing with a rank constraint. Also, at the snapshots,
        `off`, 1 - cos, (seed, norm, snapshot), `size`, the Frobenius norm of W, and for factors `balance`, ||K|| /
        ||Q||.
    """
    width = record.sizes.get("width", record.sizes["feature"])
    bounded = (svm.nuclear_of_rank(width),) if width < record.sizes["feature"] else ()
    compared = compare(record, (*NORMS, *bounded), solver)
    kept = record.sel(seed=compared["seed"].values)
    snapshots = weights_of({str(name): kept[name].values for name in kept.data_vars}, "_snapshots")
    compared["off"] = (("seed", "norm", "snapshot"), np.maximum(1 - compared["correlation"].values, _ROUNDING))
    if isinstance(snapshots, Factored):
        W = snapshots.K @ np.swapaxes(snapshots.Q, -1, -2)
        of_K, of_Q = (np.linalg.norm(factor, axis=(-1, -2)) for factor in snapshots)
        compared["balance"] = (("seed", "snapshot"), of_K / of_Q)
    else:
        W = snapshots
    compared["size"] = (("seed", "snapshot"), np.linalg.norm(W, axis=(-1, -2)))
    return compared[[name for name in _KEPT if name in compared]]
