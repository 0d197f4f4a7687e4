"""Estimates over the texts of one kind, of which there may be none."""

from __future__ import annotations

from collections.abc import Callable

import xarray

from jaxattn.study.estimates import Estimator


def over(
    texts: xarray.DataArray, estimator: Callable[[xarray.DataArray], Estimator], values: xarray.DataArray
) -> Estimator:
    """Return an estimate over the chosen texts; over none it still takes its random key, and gives no number."""
    return estimator(values[texts.values]) if texts.any() else Estimator(values, lambda key: {})
