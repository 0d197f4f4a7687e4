"""Which max-margin solution descent on (K, Q) reaches, by penalty, normalization and initial scale."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import jax
import numpy as np
import xarray
from jaxtyping import Float, PRNGKeyArray

from jaxattn.descent import PUBLISHED_EPSILON
from jaxattn.experiments.local.distance import along
from jaxattn.experiments.local.kq_penalty import examples
from jaxattn.statistics import bootstrap
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    below,
    between,
    counts_of,
    number,
    too_few,
)

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
_RULES = {"separate": "exact_normalized_gd", "joint": "jointly_normalized_gd"}
_PUBLISHED = "normalized_gd"
# Shorter runs cannot decide. At this length runs with at least this penalty have converged.
_LEAST, _RESTED = 10_000, 1e-30
# Fixed beforehand. A point counts as stationary if its residual is at most this; two distances from the solution count
# as equal if their ratio is in this range.
_STATIONARY, _EQUAL = 0.1, (0.8, 1.25)
# From the largest penalty to the smallest, 1 - cos must fall by this factor.
_FACTOR = 3.0
# The usual scale of the initial weights, the small one, and the penalty at which the two are compared.
_SCALE, _SMALL, _OF_START = 1.0, 0.01, 1e-16
# Fewer penalties show no trend.
_LEAST_PENALTIES = 3
# Derived from the bootstrap key, for the ratios that the criteria ask for.
_CHANGES = 1


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distance of every run from each solution, and the ratios that the claims ask for.

    Args:
        datasets: of `measure`, each of training (K, Q).
        key: of the bootstrap.

    Returns:
        For each run a dataset over norms and snapshots, of `distance.along`; for each with a penalty also `residual`.
        It also has geometric means over seeds of paired ratios, each with `_low` and `_high`: the final distance over
        that of another run, where there is one. For runs on the penalty path, `next` compares with the next larger
        penalty and `all` with the largest one; for the published run, `rested` compares with the same penalty and
        decreasing steps; for a run with separate norms, `joint` compares with a joint norm; for a small initial scale,
        `start` compares with the usual one.

    Raises:
        ValueError: a run of which no seed was kept, or two runs on the path that have no seed in common.
    """
    empty = [run for run, one in datasets.items() if not one.sizes["seed"]]
    if empty:
        raise ValueError(f"kq-penalty: expected a kept seed in each run, found none in {empty}")
    keys = iter(jax.random.split(key, sum(one.sizes["norm"] for one in datasets.values())))
    summaries = {}
    for run, one in datasets.items():
        parts = [along(one, str(norm), next(keys)) for norm in one["norm"].values]
        summaries[run] = xarray.concat(parts, "norm", combine_attrs="override").assign_attrs(one.attrs)
    changes = jax.random.fold_in(key, _CHANGES)
    ratios = [(one, "residual", one["residual"].values) for one in datasets.values() if "residual" in one]
    path = _path(datasets)
    for larger, smaller in itertools.pairwise(path):
        ratios += [(smaller, "next", _nearer(larger, smaller)), (smaller, "all", _nearer(path[0], smaller))]
    for one in path:
        ratios += [(one, "joint", _nearer(other, one)) for other in _others(datasets, one, optimizer=_RULES["joint"])]
    for one in chosen(datasets, **_AS_PUBLISHED):
        ratios += [(one, "rested", _nearer(other, one)) for other in _resting(datasets)]
    for one in chosen(datasets, scale=_SMALL):
        ratios += [(one, "start", _nearer(other, one)) for other in _others(datasets, one, scale=_SCALE)]
    for k, (one, name, ratio) in enumerate(ratios):
        run = one.attrs["run"]
        summaries[run] = summaries[run].assign(_geometric(name, ratio, jax.random.fold_in(changes, k)))
    return summaries


_AS_PUBLISHED = {"optimizer": _PUBLISHED, "penalty": PUBLISHED_EPSILON}


def chosen(runs: Datasets, **wanted: object) -> list[xarray.Dataset]:
    """Return the runs with these attributes, by decreasing penalty."""
    found = [one for one in runs.values() if all(one.attrs[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda one: -one.attrs["penalty"])


def _others(runs: Datasets, one: xarray.Dataset, **other: object) -> list[xarray.Dataset]:
    """Return the runs that differ from `one` in these attributes only, among the attributes that are varied."""
    varied = ("optimizer", "penalty", "scale", "step", "step_size", "steps")
    return chosen(runs, **{name: one.attrs[name] for name in varied} | other)


def _resting(runs: Datasets) -> list[xarray.Dataset]:
    """Return the run with the published penalty and decreasing steps."""
    return chosen(runs, optimizer=_RULES["separate"], penalty=PUBLISHED_EPSILON, step="falling")


def usual(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs with the published start and the most common length."""
    lengths = [one.attrs["steps"] for one in runs.values()]
    usual = {"scale": _SCALE, "step": "constant", "steps": max(set(lengths), key=lengths.count)}
    return {run: one for run, one in runs.items() if all(one.attrs[name] == value for name, value in usual.items())}


def _penalized(runs: Datasets) -> list[xarray.Dataset]:
    return [one for one in chosen(usual(runs), optimizer=_RULES["separate"]) if one.attrs["penalty"] > 0]


def _path(runs: Datasets) -> list[xarray.Dataset]:
    """Return the penalized runs that have converged; the smallest penalties would need more steps."""
    return [one for one in _penalized(runs) if one.attrs["penalty"] >= _RESTED]


def _nearer(larger: xarray.Dataset, smaller: xarray.Dataset) -> Float[np.ndarray, " seeds"]:
    """Return the final distance under the smaller penalty over that under the larger, for the seeds that both kept."""
    shared = np.intersect1d(larger["seed"].values, smaller["seed"].values)
    if not shared.size:
        names = [one.attrs["run"] for one in (larger, smaller)]
        raise ValueError(f"kq-penalty: expected seeds that both of {names} kept, found none")
    before, after = (one["off"].sel(norm="nuclear", seed=shared).values[:, -1] for one in (larger, smaller))
    return after / before


def _geometric(name: str, ratio: Float[np.ndarray, " seeds"], key: PRNGKeyArray) -> dict[str, float]:
    found = bootstrap(np.log(ratio), key)
    parts = {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
    return {part: float(np.exp(value)) for part, value in parts.items()}


def _judge_published(summaries: Datasets) -> Judgement:
    """The published run must end where the penalized risk is stationary; as corrected, as far as a run that does."""
    found, resting = chosen(summaries, **_AS_PUBLISHED), _resting(summaries)
    if not found or not resting:
        return Judgement.withheld("The run as published, or the run with its penalty and decreasing steps, is missing.")
    name, one, other = "residual of stationarity of the penalized risk, last step", found[0], resting[0]
    measured = {
        f"{name}, as published": number(one, "residual"),
        f"{name}, decreasing steps": number(other, "residual"),
    }
    ratio = number(one, "rested")
    return _judgement(
        dict.fromkeys(measured, 0.0),
        measured,
        [one, other],
        stated=(below(f"{name}, as published,", number(one, "residual"), _STATIONARY),),
        corrected=(
            below(f"{name}, decreasing steps,", number(other, "residual"), _STATIONARY),
            between("1 - cos as published over 1 - cos with decreasing steps", ratio, *_EQUAL),
        ),
        correction="it oscillates about such a point: its step is constant, and the residual is "
        f"{number(one, 'residual').mean:.2g}. With decreasing steps it is "
        f"{number(other, 'residual').mean:.2g}, and 1 - cos of the published run is {ratio.mean:.2f} times "
        f"as large. So the penalty of {PUBLISHED_EPSILON:.2g} determines where the run ends.",
        remark="Geometric means over seeds.",
    )


def _judge_normalization(summaries: Datasets) -> Judgement:
    """Under each penalty, both normalizations must converge to points equally far from the solution."""
    found = [one for one in _path(summaries) if "joint" in one]
    if len(found) < _LEAST_PENALTIES:
        return Judgement.withheld(f"Pairs of converged runs under {len(found)} penalties are too few to decide.")
    name = "1 - cos with separate norms over 1 - cos with a joint norm"
    measured = {f"{name}, penalty {_said(one)}": number(one, "joint") for one in found}
    stated = tuple(between(label, ratio, *_EQUAL) for label, ratio in measured.items())
    return _judgement(
        dict.fromkeys(measured, 1.0),
        measured,
        found,
        stated=stated,
        remark="For training without a penalty see kq-limit.",
    )


def _judge_start(summaries: Datasets) -> Judgement:
    """Under a penalty, a small start must end as far from the solution as the usual start."""
    found = [one for one in chosen(summaries, scale=_SMALL, penalty=_OF_START) if "start" in one]
    if not found:
        return Judgement.withheld(
            f"A run with a start of scale {_SMALL:g} under a penalty, or the run to compare it with, is missing."
        )
    name = f"1 - cos from a start of scale {_SMALL:g} over 1 - cos from a start of scale {_SCALE:g}"
    ratio = number(found[0], "start")
    free = [number(one, "start").mean for one in chosen(summaries, scale=_SMALL, penalty=0.0) if "start" in one]
    return _judgement(
        {name: 1.0},
        {name: ratio},
        found,
        stated=(between(f"{name}, penalty {_OF_START:.0e}", ratio, *_EQUAL),),
        remark=f"Without a penalty, after the same number of steps, this ratio is {free[0]:.2f}." if free else "",
    )


def _judge_path(summaries: Datasets) -> Judgement:
    """The distance must fall with every smaller penalty, and over all penalties by the required factor."""
    runs, path = _penalized(summaries), _path(summaries)
    if len(path) < _LEAST_PENALTIES:
        return Judgement.withheld(
            f"Converged runs under {len(path)} penalties are too few to decide; at least {_LEAST_PENALTIES} are needed."
        )
    measured = {f"1 - cos, nuclear, penalty {_said(one)}": _off(one.isel(snapshot=-1)) for one in runs}
    falls = [
        below(f"1 - cos at penalty {_said(one)} over 1 - cos at {_said(before)}", number(one, "next"), 1.0)
        for before, one in itertools.pairwise(path)
    ]
    first, last = path[0], path[-1]
    overall = f"1 - cos at penalty {_said(last)} over 1 - cos at {_said(first)}"
    x = np.log([-np.log(one.attrs["penalty"]) for one in path])
    exponent = float(np.polyfit(x, np.log([_off(one.isel(snapshot=-1)).mean for one in path]), 1)[0])
    remark = f"From penalty {_said(first)} to {_said(last)}, 1 - cos goes like log(1 / penalty)^{exponent:.1f}."
    if len(path) < len(runs):
        remark += f" Runs under penalties below {_RESTED:.0e} need more steps to converge, and are not judged."
    return _judgement(
        dict.fromkeys(measured, 0.0),
        measured,
        runs,
        stated=(*falls, below(overall, number(last, "all"), 1 / _FACTOR)),
        remark=remark,
    )


def _judgement(
    expected: Mapping[str, float],
    measured: Mapping[str, Number],
    runs: Iterable[xarray.Dataset],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    remark: str = "",
) -> Judgement:
    """Return a judgement; it is not decided if a run kept too few seeds or was too short."""
    runs = list(runs)
    undecided = too_few(min(int(one.attrs["kept"]) for one in runs))
    if min(one.attrs["steps"] for one in runs) < _LEAST:
        undecided = f"Runs of fewer than {_LEAST} steps are too short to decide; the published size is {_LEAST}."
    return Judgement(
        numbers=measured,
        expected=expected,
        counts=counts_of({one.attrs["run"]: one for one in runs}),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided,
        remark=remark,
    )


def _off(end: xarray.Dataset) -> Number:
    return number(end.sel(norm="nuclear"), "off")


def _said(one: xarray.Dataset) -> str:
    return f"{one.attrs['penalty']:.0e}"


CLAIMS = (
    Claim(
        "kq-penalty:published",
        _SOURCE,
        "The published run of (K, Q) ends at a stationary point of the penalized risk, like the points of the "
        "regularization path.",
        _judge_published,
        examples.of_published,
    ),
    Claim(
        "kq-penalty:normalization",
        _SOURCE,
        "The point to which penalized descent on (K, Q) converges does not depend on whether K and Q are normalized "
        "separately, as published, or jointly.",
        _judge_normalization,
        examples.of_normalization,
    ),
    Claim(
        "kq-penalty:start",
        _SOURCE,
        "The point to which penalized descent on (K, Q) converges does not depend on the scale of the initial weights.",
        _judge_start,
        examples.of_start,
    ),
    Claim(
        "kq-penalty:penalized",
        _SOURCE,
        "As the penalty on (K, Q) falls to zero, the point to which penalized descent converges tends in direction to "
        "the nuclear solution, as on the regularization path.",
        _judge_path,
        examples.of_path,
    ),
)
