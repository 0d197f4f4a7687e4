"""How often descent selects the optimal tokens (2308.16898, figure of the probability of global convergence)."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray
from jaxtyping import Array, Bool, PRNGKeyArray

from jaxattn import svm, tokens
from jaxattn.attention import Weights
from jaxattn.parallel import batch
from jaxattn.problem import Problem, of_arrays
from jaxattn.study.claims import Claim, Verdict, counts_of, too_few, too_short, total
from jaxattn.study.settings.training import finite_seeds, weights_of
from jaxattn.study.statistics import proportion

_SOURCE = "arXiv 2308.16898, figure of the probability of global convergence"
# An independent run of the protocol: 100 seeds, 1500 steps, by (n, T), weights and d.
_DIMENSIONS, _SEEDS = (4, 10, 20, 40, 80), 100
_INDEPENDENT = {
    (5, 5): {"W": (0.58, 0.90, 0.97, 0.99, 1.0), "KQ": (0.57, 0.88, 0.97, 0.98, 1.0)},
    (10, 5): {"W": (0.10, 0.62, 0.87, 0.99, 1.0), "KQ": (0.15, 0.69, 0.86, 0.94, 1.0)},
    (5, 10): {"W": (0.39, 0.70, 0.82, 0.87, 0.93), "KQ": (0.62, 0.77, 0.82, 0.89, 0.97)},
}


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read off the final weights of every seed whether the softmax is saturated, and on the optimal tokens.

    Args:
        record: of a `Training`.
        solver: not used; nothing is solved.

    Returns:
        A dataset with axis `seed` of the seeds that stayed finite. Kept are those that saturated; the others count
        as `ambiguous` or `diverged`.
    """
    del solver
    final, problems = read(record)
    finite = finite_seeds(final)
    saturated, globally = batch.over_seeds(_read_off, final, problems, finite)
    counts = {
        "attempted": finite.size,
        "kept": int((finite & saturated).sum()),
        "diverged": int((~finite).sum()),
        "ambiguous": int((finite & ~saturated).sum()),
    }
    return xarray.Dataset(
        {"saturated": (("seed",), saturated[finite]), "globally": (("seed",), globally[finite])},
        {"seed": record["seed"].values[finite]},
        attrs={**counts, **described(record)},
    )


def _read_off(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    saturated = finite & (tokens.saturation(weights, problem) >= tokens.SATURATED)
    return saturated, tokens.is_globally_optimal(tokens.scores(problem), tokens.selected(weights, problem))


def read(record: xarray.Dataset) -> tuple[Weights, Problem]:
    """Return the final weights and the problems of a record."""
    arrays = {str(name): record[name].values for name in record.data_vars}
    return weights_of(arrays), of_arrays(arrays)


def described(record: xarray.Dataset) -> dict[str, Any]:
    """Return what a training was of: its weights, sizes and steps, and a name for these."""
    sizes = {"n": record.sizes["input"], "T": record.sizes["token"], "d": record.sizes["feature"]}
    weights = "W" if "W" in record else "KQ"
    name = " ".join([weights, *(f"{letter}={size}" for letter, size in sizes.items())])
    return {"run": name, "weights": weights, **sizes, "steps": int(json.loads(record.attrs["config"])["steps"])}


def summarize(
    datasets: Mapping[str, xarray.Dataset], key: PRNGKeyArray
) -> tuple[dict[str, xarray.Dataset], list[Claim]]:
    """Estimate the probabilities and judge the claims.

    A run that has not saturated has selected nothing, and counts as not globally optimal.

    Args:
        datasets: of `measure`, of W and of (K, Q) over n, T and d.
        key: not used; the intervals of shares are not resampled.

    Returns:
        For "W" and "KQ" a dataset with axis `run`: n, T, d and the probability with its interval; the claims.

    Raises:
        ValueError: a run of which no seed stayed finite.
    """
    del key
    if empty := [run for run, one in datasets.items() if not one.sizes["seed"]]:
        raise ValueError(f"global-probability: expected a finite seed in each run, found none in {empty}")
    summaries = {}
    for weights in ("W", "KQ"):
        own = {run: one for run, one in datasets.items() if one.attrs["weights"] == weights}
        parts = [_share(one) for one in sorted(own.values(), key=lambda one: [one.attrs[name] for name in "nTd"])]
        summaries[weights] = xarray.concat(parts, "run", coords="all").assign_attrs(total(own))
    undecided = too_short(min(one.attrs["steps"] for one in datasets.values()))
    undecided = undecided or too_few(min(one.sizes["seed"] for one in datasets.values()))
    counts = counts_of(datasets)
    return summaries, [
        _trend(summaries, "d", counts, undecided),
        _trend(summaries, "n", counts, undecided),
        _trend(summaries, "T", counts, undecided),
        _independent(summaries, counts, undecided),
    ]


def _share(one: xarray.Dataset) -> xarray.Dataset:
    estimate = proportion((one["saturated"] & one["globally"]).values)
    variables = {"global": estimate.mean, "global_low": estimate.low, "global_high": estimate.high}
    sizes = {name: one.attrs[name] for name in ("run", "n", "T", "d")}
    return xarray.Dataset(
        {name: ((), value) for name, value in variables.items()}, {**sizes, "seeds": one.sizes["seed"]}
    )


def _trend(
    summaries: Mapping[str, xarray.Dataset], along: str, counts: Mapping[str, Mapping[str, int]], undecided: str
) -> Claim:
    """Judge a trend along one size with the others fixed: up with d, down with n and T."""
    up, others = along == "d", [name for name in "nTd" if name != along]
    against, level, apart = [], [], 0

    def is_apart(lower: xarray.Dataset, upper: xarray.Dataset) -> bool:
        """Whether the interval of a point that should have more lies above that of one that should have less."""
        lower, upper = (lower, upper) if up else (upper, lower)
        return bool(upper["global_low"] > lower["global_high"])

    for summary in summaries.values():
        for curve in _grouped(summary, others):
            points = [curve.sortby(along).isel(run=k) for k in range(curve.sizes["run"])]
            for a, b in itertools.pairwise(points):
                apart += is_apart(a, b)
                against += [f"{a['run'].item()} to {b['run'].item()}"] if is_apart(b, a) else []
            if not is_apart(points[0], points[-1]):
                level.append(points[-1]["run"].item())
    undecided = undecided or ("" if apart else "No two neighbouring points have intervals apart.")
    measured, interval = _named(summaries)
    note = (
        f"{apart} pairs of neighbouring points have 95 % intervals apart in this sense, {len(against)} in the other"
        + (f" ({'; '.join(against)})" if against else "")
        + ". Holds if none do in the other and the ends of every curve do in this one; with a correction if not at the "
        "ends of every curve" + (f" (overlapping: those to {'; '.join(level)})." if level else ".")
    )
    verdict = Verdict.FAILS if against else Verdict.CORRECTED if level else Verdict.HOLDS
    return Claim(
        id=f"global-probability:{along}",
        source=_SOURCE,
        statement=f"The probability that descent selects the optimal tokens {'rises' if up else 'falls'} with {along}.",
        expected={},
        measured=measured,
        interval=interval,
        counts=counts,
        verdict=Verdict.OPEN if undecided else verdict,
        note=undecided or note,
    )


def _independent(
    summaries: Mapping[str, xarray.Dataset], counts: Mapping[str, Mapping[str, int]], undecided: str
) -> Claim:
    """Hold the probabilities against an independent run of the protocol."""
    expected, off = {}, {}
    for weights, summary in summaries.items():
        for run in summary["run"].values:
            here = summary.sel(run=run)
            published = _INDEPENDENT.get((int(here["n"]), int(here["T"])), {}).get(weights, ())
            for d, share in zip(_DIMENSIONS, published, strict=False):
                if d == int(here["d"]):
                    expected[str(run)] = share
                    off[str(run)] = _standard_errors(float(here["global"]), int(here["seeds"]), share, _SEEDS)
    beyond = [run for run, errors in off.items() if abs(errors) > 2]
    allowed, far = _by_chance(len(off)), any(abs(errors) > 4 for errors in off.values())
    measured, interval = _named(summaries, expected)
    listed = "; ".join(f"{run} by {off[run]:+.1f}" for run in beyond)
    return Claim(
        id="global-probability:independent",
        source="an independent run of the protocol of arXiv 2308.16898: 100 seeds, 1500 steps",
        statement="The probabilities are those of an independent run of the same protocol.",
        expected=expected,
        measured=measured,
        interval=interval,
        counts={run: counts[run] for run in expected},
        verdict=Verdict.OPEN if undecided else Verdict.HOLDS if len(beyond) <= allowed and not far else Verdict.FAILS,
        note=undecided
        or f"{len(beyond)} of {len(off)} differ by more than two standard errors of the difference"
        + (f" ({listed})" if listed else "")
        + f"; holds if at most {allowed} do, as many as chance gives in 95 of 100 cases where nothing differs, "
        "and none by more than four.",
    )


def _standard_errors(share: float, seeds: int, other: float, others: int) -> float:
    """Return the difference of two shares in its standard error, a hit and a miss added to each (Agresti and Caffo).

    Without these a share of 0 or 1 would have no error at all.
    """
    sizes = np.array([seeds, others])
    shares = (np.array([share, other]) * sizes + 1) / (sizes + 2)
    return float((shares[0] - shares[1]) / np.sqrt(np.sum(shares * (1 - shares) / (sizes + 2))))


def _by_chance(comparisons: int, beyond: float = 0.0455, level: float = 0.95) -> int:
    """Return how many of so many normal errors exceed two standard errors at most, in a share `level` of cases."""
    shares = [math.comb(comparisons, k) * beyond**k * (1 - beyond) ** (comparisons - k) for k in range(comparisons + 1)]
    return int(np.searchsorted(np.cumsum(shares), level))


def _named(
    summaries: Mapping[str, xarray.Dataset], wanted: Iterable[str] | None = None
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    runs = {str(run): one.sel(run=run) for one in summaries.values() for run in one["run"].values}
    chosen = runs if wanted is None else {run: runs[run] for run in wanted}
    measured = {run: float(one["global"]) for run, one in chosen.items()}
    return measured, {run: (float(one["global_low"]), float(one["global_high"])) for run, one in chosen.items()}


def _grouped(summary: xarray.Dataset, names: list[str]) -> list[xarray.Dataset]:
    """Split the runs by the values of these sizes; what is left of a single run is no curve."""
    values = np.stack([summary[name].values for name in names], axis=1)
    parts = [summary.isel(run=(values == one).all(axis=1)) for one in np.unique(values, axis=0)]
    return [part for part in parts if part.sizes["run"] > 1]
