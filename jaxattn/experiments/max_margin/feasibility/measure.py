"""Whether the random tokens of drawn problems can be selected."""

from __future__ import annotations

import xarray

from jaxattn import svm
from jaxattn.experiments.max_margin.separation import separate


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Solve every problem in the Frobenius norm; feasibility does not depend on the norm.

    Args:
        record: of a `Drawing`, as `recording.run` writes it.
        solver: the norm's default if None.

    Returns:
        The dataset of `separation.separate`, of one norm.
    """
    return separate(record, norms=(svm.frobenius,), solver=solver)
