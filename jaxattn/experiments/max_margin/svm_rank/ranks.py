"""Estimates of the ranks of both SVM solutions against d: as published, and for certified solutions only."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Bool, PRNGKeyArray

from jaxattn.experiments.max_margin.separation import check, tally
from jaxattn.statistics import Estimate, bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Datasets, total
from jaxattn.svm import Status

# The published count: singular values above this absolute threshold; infeasible problems count as rank 1.
ABSOLUTE, _INFEASIBLE_RANK = 1e-7, 1
# Means of fewer problems are not drawn, unless fewer were attempted.
_LEAST = 8
# Tolerances of the curves, relative to the largest singular value.
_TOLERANCES = np.logspace(-10, -1, 37)
# A rank is well defined if its mean hardly changes between these two tolerances.
CLEAN = (1e-9, 1e-3)


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate mean ranks in both conventions and against the tolerance.

    Args:
        datasets: as `measure` returns them; those with a `solver` are by an inexact solver, and contain some of the
            same problems.
        key: of the bootstrap.

    Returns:
        "certified" with axes `run`, `d` and `norm`: the mean `rank` of certified solutions, the mean `published` count;
        the difference `apart` between the count and the rank; the `difference` of the nuclear rank from the Frobenius
        rank of the same problem; the `feasible` share; how many problems were `kept`, the `largest` rank; the `spread`
        of the mean rank over tolerances; and the counts of every run, `tally`. For each inexact solver, under its name,
        the mean nuclear ranks of the problems that both solved, with axes `setting`, `solver` and `tolerance`. The
        value is NaN where too few problems are feasible to estimate a mean.

    Raises:
        ValueError: no run is by this package's solvers, or a singular value is below 0.
    """
    check(datasets)
    certified = {run: one for run, one in datasets.items() if not one.attrs["solver"]}
    if not certified:
        raise ValueError(f"svm-rank: expected a run of this package's solvers, found {list(datasets)}")
    keys = iter(jax.random.split(key, len(datasets)))
    ranks = [_ranks(one, next(keys)) for one in certified.values()]
    summary = xarray.concat(ranks, "run", coords="all").assign_attrs(total(certified))
    summary["tally"] = tally(datasets)
    summaries = {"certified": summary}
    for solver in dict.fromkeys(one.attrs["solver"] for one in datasets.values() if one.attrs["solver"]):
        inexact = {run: one for run, one in datasets.items() if one.attrs["solver"] == solver}
        pairs = [(one, both) for one in inexact.values() if (both := shared(one, certified)).sizes["seed"]]
        curves = [_curves(one, both, next(keys)) for one, both in pairs]
        if curves:
            summaries[solver] = xarray.concat(curves, "setting", coords="all").assign_attrs(total(inexact))
    return summaries


def _ranks(one: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate a run's mean ranks in both conventions and its feasible share, for every dimension."""
    keys = jax.random.split(key)
    status, values = one["status"].values, one["singular_values"].values
    by_norm = [one["rank"].sel(norm=norm).values for norm in ("nuclear", "frobenius")]
    kept, decided = (status == Status.OPTIMAL).all(axis=2), (status != Status.NOT_CONVERGED).all(axis=2)
    published = np.where(status == Status.INFEASIBLE, _INFEASIBLE_RANK, (values > ABSOLUTE).sum(axis=-1))
    estimates = {
        "rank": (("d", "norm"), _where(one["rank"].values, kept, keys[0])),
        "published": (("d", "norm"), _where(published, decided, keys[1])),
        "feasible": (("d",), proportion((status == Status.OPTIMAL).any(axis=2))),
        "difference": (("d",), _where(np.subtract(*by_norm), kept, derive_key(key))),
        "apart": (
            ("d", "norm"),
            _where(_beside(published, one["rank"].values, kept, decided), decided, derive_key(key, 1)),
        ),
    }
    arrays = variables(estimates)
    # The largest rank of the kept solutions, and how much its mean depends on the tolerance.
    above = {tolerance: _above(values, tolerance)[..., 0] for tolerance in CLEAN}
    spread = np.subtract(*above.values())
    weights = kept[..., None] / np.maximum(kept.sum(axis=0), 1)[:, None]
    arrays |= {
        "kept": (("d",), kept.sum(axis=0)),
        "largest": (("d", "norm"), np.where(kept[..., None], one["rank"].values, 0).max(axis=0)),
        "spread": (("d", "norm"), (spread * weights).sum(axis=0)),
    }
    sizes = {name: one.attrs[name] for name in ("run", "n", "T")}
    return xarray.Dataset(arrays, {"d": one["d"].values, "norm": one["norm"].values, **sizes})


def _above(values: np.ndarray, *tolerances: float) -> np.ndarray:
    """Count the singular values (..., k) above each tolerance times the largest, (..., tolerances)."""
    return (values[..., None, :] > np.array(tolerances)[:, None] * values[..., None, :1]).sum(axis=-1)


def _where(values: np.ndarray, counted: Bool[np.ndarray, "seed d"], key: PRNGKeyArray) -> Estimate:
    """Estimate the means of `values`, (seed, d, ...), over the counted seeds; NaN where there are too few."""
    least = min(_LEAST, values.shape[0])
    keys = jax.random.split(key, values.shape[1])
    nothing = Estimate(*(np.full(values.shape[2:], np.nan) for _ in Estimate._fields))
    known = [counted[:, k].sum() >= least and not np.isnan(values[:, k]).any() for k in range(values.shape[1])]
    each = [bootstrap(values[counted[:, k], k], keys[k]) if known[k] else nothing for k in range(values.shape[1])]
    return Estimate(*(np.stack(part) for part in zip(*each, strict=True)))


def _beside(
    published: np.ndarray, rank: np.ndarray, kept: Bool[np.ndarray, "seed d"], decided: Bool[np.ndarray, "seed d"]
) -> np.ndarray:
    """Return one value per decided problem, (seed, d, norm), with mean `published` minus the mean kept rank.

    The second mean is over different problems; this linearizes it, so that its sampling error is right to first order.
    NaN where too few are kept to estimate it.
    """
    number = kept.sum(axis=0)
    enough = number >= min(_LEAST, len(kept))
    counted = kept[..., None]
    mean = np.where(counted, rank, 0).sum(axis=0) / np.maximum(number, 1)[:, None]
    share = np.maximum(number, 1) / np.maximum(decided.sum(axis=0), 1)
    values = published - mean - np.where(counted, rank - mean, 0) / share[:, None]
    return np.where(enough[:, None], values, np.nan)


def shared(one: xarray.Dataset, certified: Mapping[str, xarray.Dataset]) -> xarray.Dataset:
    """Return the kept certified solutions of an inexact run's problems, for its one dimension."""
    d = one["d"].values[0]
    for other in certified.values():
        if (other.attrs["n"], other.attrs["T"]) == (one.attrs["n"], one.attrs["T"]) and d in other["d"].values:
            kept = (other["status"].sel(d=d).values == Status.OPTIMAL).all(axis=1)
            return other.sel(d=d, seed=np.intersect1d(other["seed"].values[kept], one["seed"].values))
    return one.isel(d=0, seed=slice(0))


def _curves(one: xarray.Dataset, shared: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Count the singular values of the nuclear solutions at every tolerance, for both solvers on the same problems."""
    n, d = one.attrs["n"], int(shared["d"])
    pair = shared, one.sel(d=d, seed=shared["seed"].values)
    # An embedded solution has additional singular values, all zero.
    values = np.stack([each["singular_values"].sel(norm="nuclear").values[:, : min(n, d)] for each in pair], axis=1)
    keys = jax.random.split(key)
    estimates = {
        "rank": (("solver", "tolerance"), bootstrap(_above(values, *_TOLERANCES), keys[0])),
        "published": (("solver",), bootstrap((values > ABSOLUTE).sum(axis=-1), keys[1])),
    }
    variables = {
        name if part == "mean" else f"{name}_{part}": (dims, getattr(estimate, part))
        for name, (dims, estimate) in estimates.items()
        for part in ("mean", "low", "high")
    }
    # The published tolerance, relative to the largest singular value.
    variables["threshold"] = ((), np.mean(ABSOLUTE / values[:, 0, 0]))
    coordinates = {"tolerance": _TOLERANCES, "solver": ["certified", one.attrs["solver"]]}
    return xarray.Dataset(variables, {**coordinates, "setting": f"n={n} d={d}", "n": n, "d": d, "T": one.attrs["T"]})
