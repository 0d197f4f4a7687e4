"""Which max-margin solution descent on (K, Q) reaches, over penalty, normalization and start."""

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
from jaxattn.study.statistics import bootstrap

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
_RULES = {"separate": "exact_normalized_gd", "joint": "jointly_normalized_gd"}
_PUBLISHED = "normalized_gd"
# Runs shorter than this are too short to decide, and larger penalties are at rest by then.
_LEAST, _RESTED = 10_000, 1e-30
# Fixed beforehand. A point counts as stationary if its residual is at most this, and two runs as equally far from the
# solution if the ratio of their distances is between these.
_STATIONARY, _EQUAL = 0.1, (0.8, 1.25)
# From the largest penalty to the smallest, 1 - cos has to fall by this factor.
_FACTOR = 3.0
# What the start is drawn with, and where it is made small.
_SCALE, _SMALL, _OF_START = 1.0, 0.01, 1e-16
# Fewer penalties show no trend.
_LEAST_PENALTIES = 3
# Made from the key of the bootstrap, for what the criteria ask for beside the distances.
_CHANGES = 1


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the distance of every run from each solution, and the ratios that the claims ask for.

    Args:
        datasets: of `measure`, each of training (K, Q).
        key: of the bootstrap.

    Returns:
        For each run a dataset over norms and snapshots, of `distance.along`; of each with a penalty `residual`. With it
        are geometric means over seeds of ratios that are taken seed by seed, each with `_low` and `_high`: distances
        at the end over those of another run, where there is one. `next` and `all`, of the runs over whose penalties the
        path is judged, the next larger and the largest penalty; `rested`, of the published run, that with the same
        penalty and a step that falls; `joint`, of a run with a norm of each, that with one norm; and `start`, of a run
        from a small start, that from the usual one.

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
    """Return the runs whose attributes are these, by falling penalty."""
    found = [one for one in runs.values() if all(one.attrs[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda one: -one.attrs["penalty"])


def _others(runs: Datasets, one: xarray.Dataset, **other: object) -> list[xarray.Dataset]:
    """Return the runs that differ from one in these attributes alone, of those that runs are varied in."""
    varied = ("optimizer", "penalty", "scale", "step", "step_size", "steps")
    return chosen(runs, **{name: one.attrs[name] for name in varied} | other)


def _resting(runs: Datasets) -> list[xarray.Dataset]:
    """Return the run with the published penalty and a step that falls."""
    return chosen(runs, optimizer=_RULES["separate"], penalty=PUBLISHED_EPSILON, step="falling")


def usual(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from the published start, of the length that most have."""
    lengths = [one.attrs["steps"] for one in runs.values()]
    usual = {"scale": _SCALE, "step": "constant", "steps": max(set(lengths), key=lengths.count)}
    return {run: one for run, one in runs.items() if all(one.attrs[name] == value for name, value in usual.items())}


def _penalized(runs: Datasets) -> list[xarray.Dataset]:
    return [one for one in chosen(usual(runs), optimizer=_RULES["separate"]) if one.attrs["penalty"] > 0]


def _path(runs: Datasets) -> list[xarray.Dataset]:
    """Return the penalized runs that are at rest at the end: the smallest penalties take more steps than these have."""
    return [one for one in _penalized(runs) if one.attrs["penalty"] >= _RESTED]


def _nearer(larger: xarray.Dataset, smaller: xarray.Dataset) -> Float[np.ndarray, " seeds"]:
    """Return the distance at the end under the smaller penalty over that under the larger, of the seeds of both."""
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
    """The published run has to end where the penalized risk is stationary; failing that, as far as a run that does."""
    found, resting = chosen(summaries, **_AS_PUBLISHED), _resting(summaries)
    if not found or not resting:
        return Judgement.withheld("The run as published or that with its penalty and a step that falls is missing.")
    name, one, other = "residual of the penalized risk's stationarity, last step", found[0], resting[0]
    measured = {f"{name}, as published": number(one, "residual"), f"{name}, step that falls": number(other, "residual")}
    ratio = number(one, "rested")
    return _judgement(
        dict.fromkeys(measured, 0.0),
        measured,
        [one, other],
        stated=(below(f"{name}, as published,", number(one, "residual"), _STATIONARY),),
        corrected=(
            below(f"{name}, step that falls,", number(other, "residual"), _STATIONARY),
            between("1 - cos as published over that with a step that falls", ratio, *_EQUAL),
        ),
        correction=f"about such a point: its constant step bounces, and the residual is "
        f"{number(one, 'residual').mean:.2g}. With a step that falls it is "
        f"{number(other, 'residual').mean:.2g}, and 1 - cos of the published run is {ratio.mean:.2f} times as large. "
        f"So it is the penalty of {PUBLISHED_EPSILON:.2g} that sets where it ends.",
        remark="Geometric means over seeds.",
    )


def _judge_normalization(summaries: Datasets) -> Judgement:
    """At rest under each penalty both normalizations have to be as far from the solution."""
    found = [one for one in _path(summaries) if "joint" in one]
    if len(found) < _LEAST_PENALTIES:
        return Judgement.withheld(f"Pairs of runs at rest under {len(found)} penalties are too few to decide.")
    name = "1 - cos with a norm of each over that with one norm"
    measured = {f"{name}, penalty {_said(one)}": number(one, "joint") for one in found}
    stated = tuple(between(label, ratio, *_EQUAL) for label, ratio in measured.items())
    return _judgement(dict.fromkeys(measured, 1.0), measured, found, stated=stated, remark="Without: see kq-limit.")


def _judge_start(summaries: Datasets) -> Judgement:
    """Under a penalty a run from a small start has to end as far from its solution as that from the usual one."""
    found = [one for one in chosen(summaries, scale=_SMALL, penalty=_OF_START) if "start" in one]
    if not found:
        return Judgement.withheld(
            f"There is no run from a start of scale {_SMALL:g} under a penalty and one beside it."
        )
    name = f"1 - cos from a start of scale {_SMALL:g} over that of scale {_SCALE:g}"
    ratio = number(found[0], "start")
    free = [number(one, "start").mean for one in chosen(summaries, scale=_SMALL, penalty=0.0) if "start" in one]
    return _judgement(
        {name: 1.0},
        {name: ratio},
        found,
        stated=(between(f"{name}, penalty {_OF_START:.0e}", ratio, *_EQUAL),),
        remark=f"Without a penalty, after as many steps, it is {free[0]:.2f}." if free else "",
    )


def _judge_path(summaries: Datasets) -> Judgement:
    """The distance has to fall with every smaller penalty, and by the factor of descent that goes on over all."""
    runs, path = _penalized(summaries), _path(summaries)
    if len(path) < _LEAST_PENALTIES:
        return Judgement.withheld(
            f"Runs at rest under {len(path)} penalties are too few to decide; at least {_LEAST_PENALTIES} are needed."
        )
    measured = {f"1 - correlation, nuclear, penalty {_said(one)}": _off(one.isel(snapshot=-1)) for one in runs}
    falls = [
        below(f"1 - cos at penalty {_said(one)} over that at {_said(before)}", number(one, "next"), 1.0)
        for before, one in itertools.pairwise(path)
    ]
    first, last = path[0], path[-1]
    overall = f"1 - cos at penalty {_said(last)} over that at {_said(first)}"
    x = np.log([-np.log(one.attrs["penalty"]) for one in path])
    exponent = float(np.polyfit(x, np.log([_off(one.isel(snapshot=-1)).mean for one in path]), 1)[0])
    remark = f"From penalty {_said(first)} to {_said(last)} 1 - cos goes like log(1 / penalty)^{exponent:.1f}."
    if len(path) < len(runs):
        remark += f" Runs under penalties below {_RESTED:.0e} need more steps to come to rest, and are not judged."
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
    """Return a judgement; not decided if a run kept too few seeds or was too short."""
    runs = list(runs)
    undecided = too_few(min(int(one.attrs["kept"]) for one in runs))
    if min(one.attrs["steps"] for one in runs) < _LEAST:
        undecided = f"Runs of less than {_LEAST} steps are too short to decide; the published size is {_LEAST}."
    return Judgement(
        measured={label: value.mean for label, value in measured.items()},
        interval={label: (value.low, value.high) for label, value in measured.items()},
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
        "The published run of (K, Q) ends at a stationary point of the penalized risk, as those of the regularization "
        "path are.",
        _judge_published,
        examples.of_published,
    ),
    Claim(
        "kq-penalty:normalization",
        _SOURCE,
        "Where penalized descent on (K, Q) comes to rest does not depend on whether K and Q are normalized each by "
        "itself, as published, or together.",
        _judge_normalization,
        examples.of_normalization,
    ),
    Claim(
        "kq-penalty:start",
        _SOURCE,
        "Where penalized descent on (K, Q) comes to rest does not depend on the size of the start.",
        _judge_start,
        examples.of_start,
    ),
    Claim(
        "kq-penalty:penalized",
        _SOURCE,
        "As the penalty on (K, Q) falls to zero, the point that penalized descent comes to rest at tends to the "
        "nuclear solution in direction: the regularization path.",
        _judge_path,
        examples.of_path,
    ),
)
