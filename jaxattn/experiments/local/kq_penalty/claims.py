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
    Outcome,
    Setting,
    Source,
    below,
    between,
    counts_of,
    number,
    together,
    too_few,
)
from jaxattn.study.statistics import bootstrap

_SOURCE = Source("arXiv 2308.16898", "local convergence figure, panel (c)", Setting.OURS)
_RULES = {"separate": "exact_normalized_gd", "joint": "jointly_normalized_gd"}
_PUBLISHED = "normalized_gd"
# Runs shorter than this are too short to decide, and larger penalties are at rest by then.
_LEAST, _RESTED = 10_000, 1e-30
# Fixed beforehand. Two gradients balance if the ratio of their lengths is between these.
_BALANCED = (0.8, 1.25)
# Descent goes on if its distance from the solution, 1 - cos, falls by this factor after about the published last step.
# A distance below the other number counts as arrived.
_FACTOR, _PUBLISHED_STEPS, _ARRIVED = 3.0, 2000, 1e-3
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
        For each run a dataset over norms and snapshots, of `distance.along`. With it are geometric means over seeds of
        ratios that are taken seed by seed, with `_low` and `_high`: `change`, the distance from the nuclear solution at
        the end over that near step 2000; `next` and `all`, of the runs over whose penalties the path is judged, the
        distance at the end over that under the next larger and under the largest penalty; and `balance`, of the
        published run, the length of the risk's gradient over that of the penalty's.

    Raises:
        ValueError: a run of which no seed was kept, or two runs on the path that have no seed in common.
    """
    empty = [run for run, one in datasets.items() if not one.sizes["seed"]]
    if empty:
        raise ValueError(f"kq-penalty: expected a kept seed in each run, found none in {empty}")
    keys = iter(jax.random.split(key, 1 + sum(one.sizes["norm"] for one in datasets.values())))
    summaries = {}
    for run, one in datasets.items():
        parts = [along(one, str(norm), next(keys)) for norm in one["norm"].values]
        summaries[run] = xarray.concat(parts, "norm", combine_attrs="override").assign_attrs(one.attrs)
    balance_key, changes = next(keys), jax.random.fold_in(key, _CHANGES)
    ratios = [
        *((one, "balance", _balance(one), balance_key) for one in chosen(datasets, **_AS_PUBLISHED)),
        *((one, "change", _change(one), jax.random.fold_in(changes, k)) for k, one in enumerate(datasets.values())),
    ]
    path = _path(datasets)
    for k, (larger, smaller) in enumerate(itertools.pairwise(path)):
        of_next, of_all = jax.random.split(jax.random.fold_in(changes, len(datasets) + k))
        ratios.append((smaller, "next", _nearer(larger, smaller), of_next))
        ratios.append((smaller, "all", _nearer(path[0], smaller), of_all))
    for one, name, ratio, of_ratio in ratios:
        run = one.attrs["run"]
        summaries[run] = summaries[run].assign(_geometric(name, ratio, of_ratio))
    return summaries


_AS_PUBLISHED = {"optimizer": _PUBLISHED, "penalty": PUBLISHED_EPSILON}


def chosen(runs: Datasets, **wanted: object) -> list[xarray.Dataset]:
    """Return the runs whose attributes are these, by falling penalty."""
    found = [one for one in runs.values() if all(one.attrs[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda one: -one.attrs["penalty"])


def usual(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from the published start, of the length that most have."""
    lengths = [one.attrs["steps"] for one in runs.values()]
    usual = {"scale": 1.0, "steps": max(set(lengths), key=lengths.count)}
    return {run: one for run, one in runs.items() if all(one.attrs[name] == value for name, value in usual.items())}


def _penalized(runs: Datasets) -> list[xarray.Dataset]:
    return [one for one in chosen(usual(runs), optimizer=_RULES["separate"]) if one.attrs["penalty"] > 0]


def _path(runs: Datasets) -> list[xarray.Dataset]:
    """Return the penalized runs that are at rest at the end: the smallest penalties take more steps than these have."""
    return [one for one in _penalized(runs) if one.attrs["penalty"] >= _RESTED]


def _balance(one: xarray.Dataset) -> Float[np.ndarray, " seeds"]:
    # The gradient of the penalty is 2 penalty (K, Q); at a fixed point it is as long as that of the risk.
    return one["gradient_norm"].values[:, -1] / (2 * one.attrs["penalty"] * one["length"].values)


def _change(one: xarray.Dataset) -> Float[np.ndarray, " seeds"]:
    off = one["off"].sel(norm="nuclear")
    return off.isel(snapshot=-1).values / off.sel(snapshot=_at(one, _PUBLISHED_STEPS)).values


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
    """At the end of the published run both gradients have to be of one length."""
    found = chosen(summaries, **_AS_PUBLISHED)
    if not found:
        return Judgement.withheld("There is no run under the published rule and penalty.")
    name = "gradient of the risk over that of the penalty, last record"
    ratio = number(found[0], "balance")
    stated = (between(name, ratio, *_BALANCED),)
    remark = "Geometric mean over seeds."
    if together(stated) is Outcome.MET:
        remark += f" So it is the penalty of {PUBLISHED_EPSILON:.2g} that sets where the published run of (K, Q) ends."
    return _judgement({name: 1.0}, {name: ratio}, found, stated=stated, remark=remark)


def _judge_alone(summaries: Datasets) -> Judgement:
    """Without a penalty both rules have to go on towards the nuclear solution; failing that, the joint one."""
    of_rule = {name: chosen(summaries, optimizer=rule, penalty=0.0, scale=1.0) for name, rule in _RULES.items()}
    if missing := [name for name, runs in of_rule.items() if not runs]:
        return Judgement.withheld(
            f"There is no run without a penalty under the rule with {' and '.join(missing)} norm."
        )
    found = {name: max(runs, key=lambda one: one.attrs["steps"]) for name, runs in of_rule.items()}
    measured = {
        f"1 - correlation, nuclear, {name} norm, step {step}": _off(one.sel(snapshot=step))
        for name, one in found.items()
        for step in sorted({_at(one, _PUBLISHED_STEPS), int(one["snapshot"][-1])})
    }
    separate, joint = found["separate"], found["joint"]
    goes_on = _goes_on("joint", joint)
    return _judgement(
        dict.fromkeys(measured, 0.0),
        measured,
        found.values(),
        stated=(_easier(_goes_on("separate", separate), _arrived("separate", separate)), goes_on),
        corrected=(goes_on,),
        correction=f"with one norm for K and Q together, {_course(joint)}. With a norm of each its own, as published, "
        f"{_course(separate)}.",
        remark=f"Exact directions of the gradient: nothing is lost to rounding. Descent goes on if 1 - cos falls by a "
        f"factor of {_FACTOR:g} or more after about step {_PUBLISHED_STEPS}.",
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


def _goes_on(norm: str, one: xarray.Dataset) -> Criterion:
    since, until = _at(one, _PUBLISHED_STEPS), int(one["snapshot"][-1])
    quantity = f"1 - cos, {norm} norm, at step {until} over that at step {since}"
    return below(quantity, number(one, "change"), 1 / _FACTOR)


def _arrived(norm: str, one: xarray.Dataset) -> Criterion:
    return below(f"1 - cos, {norm} norm, at the last step", _off(one.isel(snapshot=-1)), _ARRIVED)


def _easier(*criteria: Criterion) -> Criterion:
    """Return the criterion with the best outcome: it is met if any is, and broken if all are."""
    return min(criteria, key=lambda one: [Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN].index(one.outcome))


def _course(one: xarray.Dataset) -> str:
    since, until = _at(one, _PUBLISHED_STEPS), int(one["snapshot"][-1])
    before, after = (_off(one.sel(snapshot=step)).mean for step in (since, until))
    return f"1 - cos goes from {before:.2g} at step {since} to {after:.2g} at step {until}"


def _off(end: xarray.Dataset) -> Number:
    return number(end.sel(norm="nuclear"), "off")


def _at(one: xarray.Dataset, step: int) -> int:
    """Return the snapshot nearest to a step, in its logarithm."""
    return int(one["snapshot"].values[np.argmin(np.abs(np.log(one["snapshot"].values / step)))])


def _said(one: xarray.Dataset) -> str:
    return f"{one.attrs['penalty']:.0e}"


CLAIMS = (
    Claim(
        "kq-penalty:published",
        _SOURCE,
        "The published run of (K, Q) ends at a point of the regularization path: its penalty balances the risk.",
        _judge_published,
        examples.of_published,
    ),
    Claim(
        "kq-penalty:no-penalty",
        _SOURCE,
        "Normalized descent on (K, Q) alone, without a penalty, tends to the direction of the nuclear solution.",
        _judge_alone,
        examples.of_alone,
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
