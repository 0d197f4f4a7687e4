"""The lemma on the SVM solutions' rank and rows (2308.16898): no rank above n, rows in the span of the queries."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.study.claims import Claim, Verdict, counts_of, too_few
from jaxattn.study.statistics import bootstrap
from jaxattn.svm import Status

# What counts as rounding; and as the accuracy of a witness whose relative gap is certified to 1e-8.
_ROUNDING, _ACCURACY = 1e-13, 1e-6
# What makes the test mean something, in each norm.
_MEANING = {
    "frobenius": "The solver builds W from the queries, but its certificate is against all of R^(d x d), where the "
    "minimizer is unique: it lies within the stated distance of W.",
    "nuclear": "The solver builds W from the queries, but its certificate is against all of R^(d x d): no matrix has a "
    "smaller norm by more than the gap.",
}


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Measure what of every kept solution lies beyond rank n and outside the span of the queries.

    Args:
        datasets: as `separation.separate` returns them, of one dimension each; those with a `solver`
            are witnesses that know nothing of the queries' span.
        key: of the bootstrap.

    Returns:
        For each dataset, with axes `seed` and `norm`, of the kept problems: singular values relative to
        the largest, `beyond` (that of number n + 1) and `outside`, `||W (I - P_Z)||_F / ||W||_F` with
        the projector on the span of the queries; the claims.
    """
    summaries = {run: _kept(one) for run, one in datasets.items()}
    own = next(one for one in summaries.values() if not one.attrs["solver"])
    witnesses = {one.attrs["solver"]: one for one in summaries.values() if one.attrs["solver"]}
    keys = jax.random.split(key, own.sizes["norm"])
    counts = counts_of(summaries)
    claims = [_claim(str(norm), own, witnesses, keys[k], counts) for k, norm in enumerate(own["norm"].values)]
    return summaries, claims


def _kept(one: xarray.Dataset) -> xarray.Dataset:
    alone = one.isel(d=0)
    alone = alone.isel(seed=(alone["status"].values == Status.OPTIMAL).all(axis=1))
    W, values, n = alone["W_svm"].values, alone["singular_values"].values, one.attrs["n"]
    basis, _ = np.linalg.qr(np.swapaxes(alone["Z"].values, 1, 2))
    outside = W - np.einsum("snde,sek,sfk->sndf", W, basis, basis)
    lengths = np.linalg.norm(W, axis=(2, 3))
    relative = values / values[..., :1]
    variables = {
        "singular_values": (("seed", "norm", "direction"), relative),
        "beyond": (("seed", "norm"), relative[..., n]),
        "outside": (("seed", "norm"), np.linalg.norm(outside, axis=(2, 3)) / lengths),
        "gap": (("seed", "norm"), np.abs(alone["gap"].values)),
    }
    coordinates = {"seed": alone["seed"].values, "norm": alone["norm"].values, "d": int(alone["d"])}
    return xarray.Dataset(variables, coordinates, attrs=one.attrs)


def _claim(
    norm: str,
    own: xarray.Dataset,
    witnesses: Mapping[str, xarray.Dataset],
    key: PRNGKeyArray,
    counts: Mapping[str, Mapping[str, int]],
) -> Claim:
    here = own.sel(norm=norm)
    n, d = own.attrs["n"], int(own["d"])
    undecided = too_few(own.sizes["seed"])
    names = {"beyond": f"sigma_{n + 1}/sigma_1", "outside": "||W(I - P_Z)||_F/||W||_F"}
    measured, interval = {}, {}
    if own.sizes["seed"]:
        estimate = bootstrap(np.stack([here[name].values for name in names], axis=1), key)
        for k, label in enumerate(names.values()):
            measured[f"{label}, d={d}"] = float(estimate.mean[k])
            interval[f"{label}, d={d}"] = (float(estimate.low[k]), float(estimate.high[k]))
    measured |= {f"{label}, d={d}, largest": _largest(here, name) for name, label in names.items()}
    if norm == "frobenius":
        # ||W - W*||^2 <= ||W||^2 - ||W*||^2, and ||W*|| is at least the dual value.
        measured[f"distance to the minimizer over ||W||_F, d={d}, at most"] = float(np.sqrt(2 * _largest(here, "gap")))
    seen = []
    for solver, witness in witnesses.items():
        there = witness.sel(norm=norm)
        for name, label in names.items():
            measured[f"{label}, d={int(witness['d'])}, largest, by {solver}"] = _largest(there, name)
        if witness.sizes["seed"]:
            seen.append(max(_largest(there, name) for name in names))
    if not undecided and not seen:
        undecided = "No solution of an outside solver was certified."
    holds = all(_largest(here, name) <= _ROUNDING for name in names) and all(value <= _ACCURACY for value in seen)
    return Claim(
        id=f"low-rank-lemma:{norm}",
        source="arXiv 2308.16898, lemma on the rank of the SVM solutions",
        statement=f"The {norm} solution has rank at most n, and its rows lie in the span of the queries.",
        expected={f"{label}, d={d}": 0.0 for label in names.values()},
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.OPEN if undecided else Verdict.HOLDS if holds else Verdict.FAILS,
        note=undecided
        or f"{_MEANING[norm]} An outside solver on the full matrix, which is given no span, finds the same to its "
        f"accuracy. Holds if both are at most {_ROUNDING:g} for every kept problem, and {_ACCURACY:g} for the outside "
        "solver.",
    )


def _largest(one: xarray.Dataset, name: str) -> float:
    return float(one[name].max()) if one.sizes["seed"] else 0.0
