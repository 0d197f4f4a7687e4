"""Ranks of both SVM solutions against d: as published, and for certified solutions only."""

from __future__ import annotations

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.statistics import Estimate, bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Datasets
from jaxattn.study.estimates import estimated, exact, mean
from jaxattn.svm import Status

# The published count: singular values above this absolute threshold; infeasible problems count as rank 1.
ABSOLUTE, _INFEASIBLE_RANK = 1e-7, 1
# Means of fewer problems are not drawn, unless fewer were attempted.
_LEAST = 8
# Tolerances of the curves, relative to the largest singular value.
_TOLERANCES = np.logspace(-10, -1, 37)
# A rank is well defined if its mean hardly changes between these two tolerances.
CLEAN = (1e-9, 1e-3)


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate mean ranks in both conventions and against the tolerance.

    Returns:
        For each run of this package's solvers, with axes `d` and `norm`: the mean `rank` of certified solutions, NaN
        where there are too few, and the mean `published` count; the `difference` of the nuclear rank from the Frobenius
        rank of the same problem; the `feasible` share; how many problems were `solved`; the `largest` rank; and the
        `spread` of the mean rank over tolerances. For each run of an inexact solver, on the problems that both solved,
        the mean nuclear ranks, with axes `solver` and `tolerance`.
    """
    keys = {name: jax.random.fold_in(key, k) for k, name in enumerate(runs)}
    ranks = {name: _ranks(run, keys[name]) for name, run in runs.items() if not run.attrs["solver"]}
    return ranks | {name: _curves(*pair, keys[name]) for name, pair in pairs(runs).items()}


def pairs(runs: Datasets) -> dict[str, tuple[xarray.Dataset, xarray.Dataset]]:
    """Return the certified and the inexact solutions of the problems that both solvers solved, by the inexact run."""
    found = {}
    for name, inexact in runs.items():
        sizes, d = (inexact.attrs["n"], inexact.attrs["T"]), inexact["d"].values[0]
        for run in runs.values():
            same = not run.attrs["solver"] and (run.attrs["n"], run.attrs["T"]) == sizes and d in run["d"].values
            if inexact.attrs["solver"] and same:
                kept = (run["status"].sel(d=d).values == Status.OPTIMAL).all(axis=1)
                shared = np.intersect1d(run["seed"].values[kept], inexact["seed"].values)
                if shared.size:
                    found[name] = (run.sel(d=d, seed=shared), inexact.sel(d=d, seed=shared))
    return found


def nuclear_values(solutions: xarray.Dataset) -> Float[np.ndarray, "seed values"]:
    """Return the singular values of nuclear solutions; an embedded solution has additional ones, all zero."""
    count = min(solutions.attrs["n"], int(solutions["d"]))
    return solutions["singular_values"].sel(norm="nuclear").values[:, :count]


def _ranks(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    status, values, rank = run["status"].values, run["singular_values"].values, run["rank"].values
    nuclear, frobenius = (run["rank"].sel(norm=norm).values for norm in ("nuclear", "frobenius"))
    kept, decided = (status == Status.OPTIMAL).all(axis=2), (status != Status.NOT_CONVERGED).all(axis=2)
    published = np.where(status == Status.INFEASIBLE, _INFEASIBLE_RANK, (values > ABSOLUTE).sum(axis=-1))
    rank_key, published_key = jax.random.split(key)
    arrays = variables(
        {
            "rank": (("d", "norm"), _mean_where(rank, kept, rank_key)),
            "published": (("d", "norm"), _mean_where(published, decided, published_key)),
            "feasible": (("d",), proportion((status == Status.OPTIMAL).any(axis=2))),
            "difference": (("d",), _mean_where(nuclear - frobenius, kept, derive_key(key))),
        }
    )
    # How much the mean depends on the tolerance.
    spread = np.subtract(*(_above(values, tolerance)[..., 0] for tolerance in CLEAN))
    weights = kept[..., None] / np.maximum(kept.sum(axis=0), 1)[:, None]
    arrays |= {
        "solved": (("d",), kept.sum(axis=0)),
        "largest": (("d", "norm"), np.where(kept[..., None], rank, 0).max(axis=0)),
        "spread": (("d", "norm"), (spread * weights).sum(axis=0)),
    }
    return xarray.Dataset(arrays, {"d": run["d"].values, "norm": run["norm"].values}, run.attrs)


def _above(values: np.ndarray, *tolerances: float) -> np.ndarray:
    """Count the singular values (..., k) above each tolerance times the largest, (..., tolerances)."""
    return (values[..., None, :] > np.array(tolerances)[:, None] * values[..., None, :1]).sum(axis=-1)


def _mean_where(values: np.ndarray, counted: Bool[np.ndarray, "seed d"], key: PRNGKeyArray) -> Estimate:
    """Estimate the means of `values`, (seed, d, ...), over the counted seeds; NaN where there are too few."""
    least = min(_LEAST, values.shape[0])
    nothing = Estimate(*(np.full(values.shape[2:], np.nan) for _ in Estimate._fields))
    means = [
        bootstrap(values[those, k], jax.random.fold_in(key, k)) if (those := counted[:, k]).sum() >= least else nothing
        for k in range(values.shape[1])
    ]
    return Estimate(*(np.stack(part) for part in zip(*means, strict=True)))


def _curves(certified: xarray.Dataset, inexact: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Count the singular values of the nuclear solutions at every tolerance, for both solvers on the same problems."""
    values = np.stack([nuclear_values(certified), nuclear_values(inexact)], axis=1)
    axes = {"solver": ["certified", "inexact"], "tolerance": _TOLERANCES}
    counts = xarray.DataArray(_above(values, *_TOLERANCES), axes, ("seed", "solver", "tolerance"))
    published = counts.isel(tolerance=0, drop=True).copy(data=(values > ABSOLUTE).sum(axis=-1))
    # The published tolerance, relative to the largest singular value.
    threshold = exact(float(np.mean(ABSOLUTE / values[:, 0, 0])))
    summary = estimated(inexact, key, rank=mean(counts), published=mean(published), threshold=threshold)
    return summary.assign_coords(d=int(inexact["d"]))
