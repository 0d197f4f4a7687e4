"""The paths of a run in the plane, the rays of the max-margin solutions, and their correlation."""

from __future__ import annotations

import json

import xarray

from jaxattn import svm
from jaxattn.study.measuring.comparison import compare


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W or (K, Q) with the Frobenius and the nuclear solution of its selected tokens.

    Args:
        record: of a `Training` with inputs in the plane, as `recording.run` writes it.
        solver: for both norms; each norm's default if None.

    Returns:
        The dataset of `comparison.compare`, whose attribute `run` also says whether training followed the exact
        gradient direction, without the published floor and penalty.
    """
    one = compare(record, solver=solver)
    rule = json.loads(record.attrs["config"])["optimizer"]
    exact = rule["floor"] == rule["penalty"] == 0
    return one.assign_attrs(run=one.attrs["run"] + (", exact" if exact else ""))
