"""Estimates of what was measured over seeds, each a number (or a curve of numbers) with a 95 % interval.

An estimate is a value; `estimated` evaluates several for one run:

    estimated(run, key, off=geometric_mean(off), near=share(off[:, -1] < 1e-6), exponent=power_law(off, since=1000))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray, Real

from jaxattn.statistics import Estimate, bootstrap, proportion
from jaxattn.study.claims.criteria import Number


@dataclass(frozen=True)
class Estimator:
    """An estimate that is not evaluated: from a key to its parts by suffix ("", "_low", "_high", "_error")."""

    like: xarray.DataArray
    parts: Callable[[PRNGKeyArray], Mapping[str, Any]]
    random: bool = True


def estimated(run: xarray.Dataset, key: PRNGKeyArray, **estimators: Estimator) -> xarray.Dataset:
    """Return the estimates of a run by name, with the suffixes `_low`, `_high` and `_error`, and the run's attributes.

    The k-th random estimate has the key `fold_in(key, k)`. ValueError: two have different coordinates on an axis.
    """
    estimates: dict[str, xarray.DataArray] = {}
    drawn = 0
    for name, estimator in estimators.items():
        parts = estimator.parts(jax.random.fold_in(key, drawn))
        drawn += estimator.random
        estimates |= {f"{name}{suffix}": estimator.like.copy(data=np.asarray(part)) for suffix, part in parts.items()}
    # Estimates on different steps would be filled with NaN.
    return xarray.merge([estimates], join="exact", compat="no_conflicts").assign_attrs(run.attrs)


def mean(values: xarray.DataArray) -> Estimator:
    """Return the mean over seeds with its bootstrap interval."""
    array, like = _by_seed(values)
    return Estimator(like, lambda key: _parts(bootstrap(array, key)))


def geometric_mean(values: xarray.DataArray) -> Estimator:
    """Return the geometric mean over seeds of positive values, with the bootstrap interval of their logarithms."""
    array, like = _by_seed(values)

    def parts(key: PRNGKeyArray) -> dict[str, np.ndarray]:
        logarithm = bootstrap(np.log10(array), key)
        return {"": 10**logarithm.mean, "_low": 10**logarithm.low, "_high": 10**logarithm.high}

    return Estimator(like, parts)


def share(hits: xarray.DataArray) -> Estimator:
    """Return the share of seeds with True, with Wilson's interval."""
    array, like = _by_seed(hits)
    return Estimator(like, lambda key: _parts(proportion(array)), random=False)


def quantiles(values: xarray.DataArray, *percents: int) -> Estimator:
    """Return quantiles over seeds, with the suffixes `_10` for 10 %, and so on."""
    array, like = _by_seed(values)
    return Estimator(like, lambda key: {f"_{q}": np.quantile(array, q / 100, axis=0) for q in percents}, random=False)


def exact(value: xarray.DataArray | float) -> Estimator:
    """Return a number that needs no interval: a count, a largest error, a certified value."""
    like = value if isinstance(value, xarray.DataArray) else xarray.DataArray(value)
    return Estimator(like, lambda key: {"": like.values}, random=False)


def undefined() -> Estimator:
    """Return an estimate that is NaN, with its interval: there is nothing to estimate it from."""
    return Estimator(xarray.DataArray(math.nan), lambda key: dict.fromkeys(("", "_low", "_high", "_error"), math.nan))


def power_law(
    values: xarray.DataArray, since: float, least: float = 0.0, along: str = "snapshot", until: float = math.inf
) -> Estimator:
    """Return the exponent p in values ~ x^p, fitted for each seed by least squares on logarithms; the mean over seeds.

    The fit is of positive values (seed, along) for `since` <= x <= `until`; it is NaN if the run ends before `least`.
    """
    x = values[along].values
    late = (x >= since) & (x <= until)
    if x[-1] < least:
        return undefined()
    array, _ = _by_seed(values)
    of_seeds = exponents(x[None, late], array[:, late])
    return Estimator(xarray.DataArray(math.nan), lambda key: _parts(bootstrap(of_seeds, key)))


def exponents(
    x: Real[np.ndarray, "#seeds snapshots"], y: Float[np.ndarray, "seeds snapshots"]
) -> Float[np.ndarray, " seeds"]:
    """Return the exponent p in y ~ x^p for each seed, by least squares on the logarithms."""
    x, y = np.broadcast_to(np.log(x), y.shape), np.log(y)
    x = x - x.mean(axis=1, keepdims=True)
    return np.sum(x * y, axis=1) / np.sum(x * x, axis=1)


def read_at(
    at: Float[np.ndarray, "*lanes m"], clock: Float[np.ndarray, "*lanes k"], values: Float[np.ndarray, "*lanes k"]
) -> Float[np.ndarray, "*lanes m"]:
    """Return a quantity at other readings of its clock, linear in the clock's logarithm and constant beyond its ends.

    The clock is positive and grows along the run: a path, or a norm.
    """
    return np.vectorize(np.interp, signature="(m),(k),(k)->(m)")(np.log(at), np.log(clock), values)


def number(estimates: xarray.Dataset, name: str, at: int | None = None, **where: Any) -> Number:
    """Return an estimate as a number with its interval; exact if it has none.

    `at` is the index of a snapshot, for example -1 for the last, and `where` other coordinates: `norm="nuclear"`.
    """
    here = estimates if at is None else estimates.isel(snapshot=at)
    here = here.sel(where) if where else here
    value = float(here[name])
    if f"{name}_low" not in here:
        return Number.exact(value)
    return Number(value, float(here[f"{name}_low"]), float(here[f"{name}_high"]))


def added(runs: Mapping[str, xarray.Dataset], count: str) -> int:
    """Return a count of several runs, added up."""
    return sum(int(run[count]) for run in runs.values())


def _by_seed(values: xarray.DataArray) -> tuple[np.ndarray, xarray.DataArray]:
    """Return the values with the seeds first, and an array with the other axes and their coordinates."""
    ordered = values.transpose("seed", ...)
    return ordered.values, ordered.isel(seed=0, drop=True).astype(float)


def _parts(estimate: Estimate) -> dict[str, np.ndarray]:
    return {"": estimate.mean, "_low": estimate.low, "_high": estimate.high, "_error": estimate.error}
