"""Correlations of a run with the max-margin solutions, snapshot by snapshot."""

from __future__ import annotations

import xarray

from jaxattn import svm
from jaxattn.study.measuring.comparison import compare


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W or (K, Q) with the Frobenius and the nuclear solution of its selected tokens.

    Args:
        record: of a `Training`, as `recording.run` writes it.
        solver: for both norms; each norm's default if None.

    Returns:
        The dataset of `comparison.compare`.
    """
    return compare(record, solver=solver)
