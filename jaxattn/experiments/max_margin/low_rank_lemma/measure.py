"""The SVM solutions of drawn problems in both norms, with singular values and the queries."""

from __future__ import annotations

import xarray

from jaxattn import svm
from jaxattn.experiments.max_margin.separation import separate


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve every problem in both norms.

    Args:
        record: of a `Drawing`, as `recording.run` writes it.
        solver: for both norms; each norm's default if None.

    Returns:
        The dataset of `separation.separate`.
    """
    return separate(record, solver=solver)
