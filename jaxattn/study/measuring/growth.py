"""Estimate whether the weights of a run still grow at its end, as they must if they have a limit in direction."""

from __future__ import annotations

import math

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.statistics import bootstrap
from jaxattn.study.claims.criteria import Number

# Fixed beforehand. Weights that grow like log k, the slowest growth of any descent here, appear as k^0.14 between the
# steps 1000 and 2000, and constant weights as k^0. Slower growth than this counts as rest.
AT_REST = 0.05


def lengths(comparison: xarray.Dataset) -> xarray.DataArray:
    """Return the Frobenius norms ||W(k) Z|| at the snapshots of a comparison, (seed, snapshot)."""
    squares = comparison["path"].transpose("seed", "snapshot", "input", "feature") ** 2
    total = squares.sum(("input", "feature"), skipna=False)
    return total.copy(data=np.sqrt(total.values)).rename("length")


def growth(length: xarray.DataArray, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate p in ||W(k) Z|| ~ k^p over the second half of a run, from the finite `lengths` of at least one seed.

    The result has no axes: the mean over seeds as `growth`, `growth_low` and `growth_high`, NaN if the run has only one
    snapshot, and the steps `since` and `until` between which it is measured.
    """
    steps = length["snapshot"].values
    middle = int(np.argmin(np.abs(steps - steps[-1] / 2)))
    since, until = int(steps[middle]), int(steps[-1])
    estimate = Number.exact(math.nan)
    if since < until:
        # Weights that are still zero count as not growing.
        ends = np.maximum(length.values[:, [middle, -1]], np.finfo(float).tiny)
        exponent = np.log(ends[:, 1] / ends[:, 0]) / math.log(until / since)
        found = bootstrap(exponent, key)
        estimate = Number(float(found.mean), float(found.low), float(found.high))
    names = ("growth", "growth_low", "growth_high")
    return xarray.Dataset({**dict(zip(names, estimate, strict=True)), "since": since, "until": until})
