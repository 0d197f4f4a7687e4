"""From the record of a run in the plane to its paths, the rays of the max-margin solutions, and their correlation."""

from __future__ import annotations

import xarray

from jaxattn import svm
from jaxattn.study.measuring.comparison import compare


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W or (K, Q) with the Frobenius and the nuclear solution of its selected tokens.

    Args:
        record: of a `Training` with inputs in the plane, as `recording.run` writes it.
        solver: for both norms; those of each norm if None.

    Returns:
        The dataset of `comparison.compare`.
    """
    return compare(record, solver=solver)
