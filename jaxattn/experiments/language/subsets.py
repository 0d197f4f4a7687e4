"""Estimates over the texts of one kind, of which there may be none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.estimates import Estimator, estimated


def over(
    texts: xarray.DataArray, estimator: Callable[[xarray.DataArray], Estimator], values: xarray.DataArray
) -> Estimator:
    """Return an estimate over the chosen texts; over none it still takes its random key, and gives no number."""
    return estimator(values[texts.values]) if texts.any() else Estimator(values, lambda key: {})


def by_kind(
    run: xarray.Dataset, key: PRNGKeyArray, estimates: Callable[[xarray.Dataset], Mapping[str, Estimator]]
) -> xarray.Dataset:
    """Return estimates over the texts that are `feasible`, and over the others, as far as there are any.

    The names have the kind as a prefix, such as `feasible_off`; `feasible_texts` and `infeasible_texts` are numbers.
    """
    summary = xarray.Dataset()
    for k, (kind, of_kind) in enumerate({"feasible": run["feasible"], "infeasible": ~run["feasible"]}.items()):
        summary[f"{kind}_texts"] = of_kind.sum()
        if of_kind.any():
            named = {f"{kind}_{name}": one for name, one in estimates(run.isel(seed=of_kind.values)).items()}
            summary = summary.assign(estimated(run, jax.random.fold_in(key, k), **named).data_vars)
    return summary
