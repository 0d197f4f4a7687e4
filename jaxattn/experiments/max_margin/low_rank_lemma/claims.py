"""The lemma on the rank and rows of SVM solutions (2308.16898): rank at most n, rows in the span of the queries."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.max_margin.low_rank_lemma import examples
from jaxattn.experiments.max_margin.separation import check
from jaxattn.statistics import Estimate, bootstrap, variables
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    counts_of,
    number,
    too_few,
)
from jaxattn.svm import Status

_SOURCE = Source("arXiv 2308.16898", "lemma on the rank of the SVM solutions", Setting.OURS)
# Thresholds for rounding error, and for the accuracy of an external solution with a relative gap certified to 1e-8.
ROUNDING, ACCURACY = 1e-13, 1e-6
_PARTS = ("beyond", "outside")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Measure how far every kept solution is from rank n and from the span of the queries.

    Args:
        datasets: as `measure` returns them, of one dimension each; those with a `solver` are by external solvers, which
            do not use the span of the queries.
        key: of the bootstrap.

    Returns:
        For each dataset, with axes `seed` and `norm`, for the kept problems: `beyond`, singular value number n + 1 over
        the largest; `outside`, `||W (I - P_Z)||_F / ||W||_F` with the projector on the span of the queries; and `gap`,
        the certified relative gap. For the dataset without a `solver`, if it has kept problems, also the means
        `mean_beyond` and `mean_outside` with intervals, (norm).

    Raises:
        ValueError: not exactly one dataset is without a `solver`, or a singular value is below 0.
    """
    check(datasets)
    own = [run for run, one in datasets.items() if not one.attrs["solver"]]
    if len(own) != 1:
        raise ValueError(f"low-rank-lemma: expected one run of this package's solvers, found {own}")
    summaries = {run: _kept(one) for run, one in datasets.items()}
    if summaries[own[0]].sizes["seed"]:
        summaries[own[0]] = summaries[own[0]].assign(_means(summaries[own[0]], key))
    return summaries


def _kept(one: xarray.Dataset) -> xarray.Dataset:
    alone = one.isel(d=0)
    alone = alone.isel(seed=(alone["status"].values == Status.OPTIMAL).all(axis=1))
    W, values, n = alone["W_svm"].values, alone["singular_values"].values, one.attrs["n"]
    basis, _ = np.linalg.qr(np.swapaxes(alone["Z"].values, 1, 2))
    outside = W - np.einsum("snde,sek,sfk->sndf", W, basis, basis)
    lengths = np.linalg.norm(W, axis=(2, 3))
    arrays = {
        "beyond": (("seed", "norm"), values[..., n] / values[..., 0]),
        "outside": (("seed", "norm"), np.linalg.norm(outside, axis=(2, 3)) / lengths),
        "gap": (("seed", "norm"), np.abs(alone["gap"].values)),
    }
    coordinates = {"seed": alone["seed"].values, "norm": alone["norm"].values, "d": int(alone["d"])}
    return xarray.Dataset(arrays, coordinates, attrs=one.attrs)


def _means(one: xarray.Dataset, key: PRNGKeyArray) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Estimate the means of both parts, (norm)."""
    values = np.stack([one[name].values for name in _PARTS], axis=2)
    keys = jax.random.split(key, one.sizes["norm"])
    each = [bootstrap(values[:, k], keys[k]) for k in range(one.sizes["norm"])]
    both = Estimate(*(np.stack(part) for part in zip(*each, strict=True)))
    return variables(
        {f"mean_{name}": (("norm",), Estimate(*(part[:, k] for part in both))) for k, name in enumerate(_PARTS)}
    )


def _judge(norm: str, summaries: Datasets) -> Judgement:
    """Both must be rounding error in every certified solution, and within the accuracy of external ones."""
    whole = next(one for one in summaries.values() if not one.attrs["solver"])
    witnesses = {one.attrs["solver"]: one.sel(norm=norm) for one in summaries.values() if one.attrs["solver"]}
    own, n, d = whole.sel(norm=norm), whole.attrs["n"], int(whole["d"])
    names = {"beyond": f"sigma_{n + 1}/sigma_1", "outside": "||W(I - P_Z)||_F/||W||_F"}
    numbers: dict[str, Number | float] = {
        f"{label}, d={d}": number(own, f"mean_{name}") for name, label in names.items() if own.sizes["seed"]
    }
    numbers |= {f"{label}, d={d}, largest": _largest(own, name) for name, label in names.items()}
    # ||W - W*||^2 <= ||W||^2 - ||W*||^2, and ||W*|| is at least the dual value.
    distance = float(np.sqrt(2 * _largest(own, "gap")))
    if norm == "frobenius":
        numbers[f"distance to the minimizer over ||W||_F, d={d}, at most"] = distance
    for solver, witness in witnesses.items():
        for name, label in names.items():
            numbers[f"{label}, d={int(witness['d'])}, largest, by {solver}"] = _largest(witness, name)
    seen = {solver: witness for solver, witness in witnesses.items() if witness.sizes["seed"]}
    undecided = too_few(own.sizes["seed"])
    if not undecided and not seen:
        undecided = "No solution by an external solver was certified."
    return Judgement(
        numbers=numbers,
        expected={f"{label}, d={d}": 0.0 for label in names.values()},
        counts=counts_of(summaries),
        stated=(
            *(_small(f"largest {label}", own, name, ROUNDING) for name, label in names.items()),
            *(
                _small(f"largest {label}, by {solver},", witness, name, ACCURACY)
                for solver, witness in seen.items()
                for name, label in names.items()
            ),
        ),
        undecided=undecided,
        remark=_remark(norm, own, distance, seen),
    )


def _remark(norm: str, own: xarray.Dataset, distance: float, seen: Datasets) -> str:
    """Say why the test is meaningful: certificates cover all matrices, and external solvers ignore the span."""
    said = "The solver builds W from the queries, but its certificate covers all of R^(d x d)"
    if norm == "frobenius":
        said += f". There the minimizer is unique, and it lies within {distance:.2g} ||W||_F of W."
    else:
        said += f": no feasible matrix has a norm smaller by more than a relative {_largest(own, 'gap'):.2g}."
    for solver, witness in seen.items():
        found = max(_largest(witness, name) for name in _PARTS)
        said += (
            f" For solutions on the full matrix by {solver}, which does not use the span, both are at most {found:.2g}."
        )
    return said


def _small(label: str, one: xarray.Dataset, name: str, threshold: float) -> Criterion:
    value = Number.exact(_largest(one, name) if one.sizes["seed"] else np.nan)
    return below(label, value, threshold)


def _largest(one: xarray.Dataset, name: str) -> float:
    return float(one[name].max()) if one.sizes["seed"] else 0.0


CLAIMS = tuple(
    Claim(
        f"low-rank-lemma:{norm}",
        _SOURCE,
        f"The {norm} solution has rank at most n, and its rows lie in the span of the queries.",
        partial(_judge, norm),
        examples.lemma,
    )
    for norm in ("frobenius", "nuclear")
)
