"""Compare long runs with each max-margin solution, snapshot by snapshot."""

from __future__ import annotations

import jax
import numpy as np
import xarray

from jaxattn import svm
from jaxattn.attention import Factored
from jaxattn.study.measuring.comparison import NORMS, compare
from jaxattn.study.settings.parameters import weights_of

# The rounding error of 1 - cos in double precision for equal directions.
_ROUNDING = 1e-16
_KEPT = ("status", "gap", "violation", "selected", "margin_ratio", "size", "length", "gradient_norm", "probability")


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare a run with its max-margin solutions, and keep what a figure over many runs needs.

    Factors narrower than the tokens are also compared with the nuclear solution of their rank.

    Args:
        record: of a `Training`.
        solver: for all norms; each norm's default if None.

    Returns:
        The dataset of `compare` without its paths, with `off`, 1 - cos at every snapshot, (seed, norm,
        snapshot); `margin_ratio`, likewise, but not for a norm with a rank constraint; `size`, the Frobenius norm of W
        at the snapshots; for factors `balance`, ||K|| / ||Q|| there; `length`, the norm of all weights at the end; and
        the `gradient_norm`.
    """
    arrays = {str(name): record[name].values for name in record.data_vars}
    snapshots, final = weights_of(arrays, "_snapshots"), weights_of(arrays)
    width = final.K.shape[-1] if isinstance(final, Factored) else 0
    bounded = (svm.nuclear_of_rank(width),) if 0 < width < record.sizes["feature"] else ()
    compared = compare(record, (*NORMS, *bounded), solver)
    kept = np.isin(record["seed"].values, compared["seed"].values)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(final)]
    W = snapshots.K @ np.swapaxes(snapshots.Q, -1, -2) if isinstance(snapshots, Factored) else np.asarray(snapshots)
    compared["off"] = (("seed", "norm", "snapshot"), np.maximum(1 - compared["correlation"].values, _ROUNDING))
    compared["size"] = (("seed", "snapshot"), np.linalg.norm(W, axis=(-1, -2))[kept])
    compared["length"] = (("seed",), np.sqrt(sum((leaf**2).sum(axis=(1, 2)) for leaf in leaves))[kept])
    compared["gradient_norm"] = (("seed", "step"), arrays["gradient_norm"][kept])
    added = ["off"]
    if isinstance(snapshots, Factored):
        lengths = [np.linalg.norm(leaf, axis=(-1, -2)) for leaf in snapshots]
        compared["balance"] = (("seed", "snapshot"), (lengths[0] / lengths[1])[kept])
        added.append("balance")
    return compared[[*(name for name in _KEPT if name in compared), *added]]
