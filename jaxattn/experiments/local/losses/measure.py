"""Correlations of training W under a loss with the max-margin solutions."""

from __future__ import annotations

import json

import numpy as np
import xarray

from jaxattn import svm
from jaxattn.study.measuring.comparison import compare
from jaxattn.study.measuring.ranked import alone

_NAMES = {"correlation_loss": "correlation", "heavy_tail": "heavy-tail"}
# The rounding error of 1 - cos in double precision for equal directions.
_SAME = 1e-16


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Compare training W with the Frobenius and the nuclear solution of its selected tokens.

    Args:
        record: of a `Training` of a free W, alone or together with v, as `recording.run` writes it.
        solver: for both norms; each norm's default if None.

    Returns:
        `off`, 1 - cos with both solutions, (seed, norm, snapshot), and `path`, W(k) z_i, of
        `comparison.compare`. The attribute `run` is the name of the loss, prefixed with "joint " where v was trained
        too.
    """
    joint = "readout" in record
    one = compare(alone(record) if joint else record, solver=solver)
    loss = str(json.loads(record.attrs["config"])["loss"]["_target_"]).rpartition(".")[2]
    one["off"] = (("seed", "norm", "snapshot"), np.maximum(1 - one["correlation"].values, _SAME))
    name = _NAMES.get(loss, loss)
    return one[["off", "path"]].assign_attrs(run=f"joint {name}" if joint else name)
