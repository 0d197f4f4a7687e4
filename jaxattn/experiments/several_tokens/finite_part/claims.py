"""The finite part (2308.16898, eq. 9): attention ratios inside the selected sets, compared with a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.several_tokens.evidence import PARTS, ROUNDING, WITHOUT, counts_of_part, estimate, undecided
from jaxattn.experiments.several_tokens.finite_part import examples
from jaxattn.statistics import proportion
from jaxattn.study.claims import (
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Outcome,
    Setting,
    Source,
    above,
    between,
)

# The paper draws no figure of it.
_SOURCE = Source("arXiv 2308.16898", "finite part of the multi-token limit (eq. 9)", Setting.OURS)
HEADS = {"quadratic": "h(x) = v . x - lambda ||x||^2", "ReLU": "a ReLU head"}
# A ratio has settled if its logarithm changes by less than the first in the second half of training. A line agrees
# within the second.
_SETTLED, AGREES = 0.01, 0.05
# A statement about the inputs must be true for at least this share.
MOST = 0.5
_SAMPLES, _ENDS = 2000, ("", "_low", "_high")
# Estimates with an interval, and those without one.
_WITH, _ALONE = ("slope", "intercept", "rms", "determined", "not unique", "settled"), ("drift", "fitted", "foretold")


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Fit a line to the ratios under each head, with the published selection and without.

    Args:
        datasets: of every lambda and dimension, as `measure` returns it.
        key: of the bootstrap.

    Returns:
        For each head two datasets, for the published selection under its name and for every run under its name with the
        suffix `, no selection`: kinds and pairs, the line, and shares of the inputs, with their intervals. The
        attribute `of_runs` has the counts of each run.

    Raises:
        ValueError: no run under one of the heads; or negative changes or distances, which are impossible.
    """
    found = {one.attrs["head"] for one in datasets.values()}
    if found != {*HEADS}:
        raise ValueError(f"finite-part: expected runs under the heads {[*HEADS]}, found {sorted(found)}")
    for run, one in datasets.items():
        least = min(float(one[name].values.min(initial=0.0)) for name in _ALONE)
        if least < -ROUNDING:
            raise ValueError(f"finite-part: expected drifts and distances of at least 0, found {least:.3g} in {run}")
    summaries = {}
    for head, own in zip(HEADS, jax.random.split(key, len(HEADS)), strict=True):
        runs = {run: one for run, one in datasets.items() if one.attrs["head"] == head}
        for part, suffix in zip(PARTS, ("", WITHOUT), strict=True):
            counts = {run + suffix: counts_of_part(one, part) for run, one in runs.items()}
            summaries[head + suffix] = _summary(list(runs.values()), part, own).assign_attrs(of_runs=counts)
    return summaries


def _summary(runs: list[xarray.Dataset], part: str, key: PRNGKeyArray) -> xarray.Dataset:
    """Join the runs of one part under one head."""
    here = [
        one.isel(mixed=one[part].values, pair=one[f"pair_{part}"].values, whole=one[f"whole_{part}"].values)
        for one in runs
    ]
    names = ("kind", "drift", "predicted", "descended", "fitted", "foretold", "pair_seed")
    joined = {name: np.concatenate([one[name].values for one in here]) for name in names}
    # A seed is a different instance in every run.
    run = np.concatenate([np.full(one.sizes["pair"], place) for place, one in enumerate(here)])
    summary = xarray.Dataset({"kind": (("mixed",), joined["kind"])}, {"snapshot": here[0]["snapshot"].values})
    for name in ("predicted", "descended"):
        summary[name] = (("pair",), joined[name])
    estimates: dict[str, Sequence[Any]] = {}
    if len(joined["kind"]):
        shares = {"determined": joined["kind"] == 0, "not unique": joined["kind"] == 2}
        shares["settled"] = joined["drift"] < _SETTLED
        estimates = {name: proportion(holds)[:3] for name, holds in shares.items()}
        summary["drift"] = float(np.median(joined["drift"]))
    _, of = np.unique(np.stack([run, joined["pair_seed"]]), axis=1, return_inverse=True)
    if len(np.unique(of)) > 2:
        estimates |= _line(joined["predicted"], joined["descended"], of, key)
    for name, values in estimates.items():
        summary = summary.assign({name + end: float(value) for end, value in zip(_ENDS, values, strict=True)})
    for name in ("fitted", "foretold") if len(joined["fitted"]) else ():
        summary[name] = joined[name].mean()
    counts = [counts_of_part(one, part) for one in runs]
    return summary.assign_attrs({name: sum(one[name] for one in counts) for name in counts[0]})


def _line(predicted: np.ndarray, descended: np.ndarray, of: np.ndarray, key: PRNGKeyArray) -> dict[str, Sequence[Any]]:
    """Fit `descended = slope predicted + intercept`; return both and the rms difference, with intervals over runs."""
    one, square = np.ones_like(predicted), (descended - predicted) ** 2
    terms = (one, predicted, descended, predicted**2, predicted * descended, square)
    sums = np.stack([np.bincount(of, weights=term) for term in terms], axis=1)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    drawn = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=_SAMPLES)
    n, x, y, xx, xy, square = np.concatenate([sums.sum(axis=0)[None], drawn @ sums]).T
    slope = (n * xy - x * y) / np.maximum(n * xx - x * x, np.finfo(float).tiny)
    found = {"slope": slope, "intercept": (y - slope * x) / n, "rms": np.sqrt(square / n)}
    return {name: (values[0], *np.quantile(values[1:], [0.025, 0.975])) for name, values in found.items()}


def _judge_quadratic(summaries: Datasets) -> Judgement:
    """Judge the head `v . x - lambda ||x||^2`."""
    return _judgement("quadratic", summaries)


def _judge_relu(summaries: Datasets) -> Judgement:
    """Judge the ReLU head."""
    return _judgement("ReLU", summaries)


def _judgement(head: str, summaries: Datasets) -> Judgement:
    """For most inputs the ratios must settle and the best distribution be unique, and its ratios be found."""
    own = {run: summaries[run] for run in (head, head + WITHOUT)}
    numbers: dict[str, Number | float] = {}
    for run, one in own.items():
        numbers |= {f"{run}, {name}": estimate(one, name) for name in _WITH if name in one}
        numbers |= {f"{run}, {name}": float(one[name]) for name in _ALONE if name in one}
    reason = undecided(own)
    if not reason and not all("slope" in one for one in own.values()):
        reason = "Ratios are predicted for fewer than three runs, too few to decide."
    return Judgement(
        numbers=numbers,
        expected={f"{run}, {name}": value for run in own for name, value in (("slope", 1.0), ("intercept", 0.0))},
        counts={run: counts for one in own.values() for run, counts in one.attrs["of_runs"].items()},
        stated=tuple(criterion for run, one in own.items() for criterion in _criteria(run, one)),
        undecided=reason,
        remark="" if reason else _remark(own),
    )


def _criteria(run: str, one: xarray.Dataset) -> tuple[Criterion, ...]:
    return (
        above(f"{run}: share of inputs whose ratios settle", estimate(one, "settled"), MOST),
        _determined(run, one),
        between(f"{run}: slope", estimate(one, "slope"), 1 - AGREES, 1 + AGREES),
        between(f"{run}: intercept", estimate(one, "intercept"), -AGREES, AGREES),
    )


def _determined(run: str, one: xarray.Dataset) -> Criterion:
    what = "share of inputs with a unique best distribution that mixes the set"
    return above(f"{run}: {what}", estimate(one, "determined"), MOST)


def _remark(own: Datasets) -> str:
    said = (
        "The statistics are over inputs that select several tokens. The line is a fit of the logarithms of the ratios "
        "at the end of descent to those of the best distribution. "
    )
    if any(_determined(run, one).outcome is Outcome.BROKEN for run, one in own.items()):
        many = " and ".join(f"{float(one['not unique']):.0%}" for one in own.values())
        said += (
            f"For {many} of the inputs (with the published selection and without it) many distributions are equally "
            "good, for example where all units of the head are off. Such an input has no gradient, and its ratios "
            "depend on the start and on how the other inputs change W. "
        )
    return said + (
        f"Settled: no log ratio of the input changes by {_SETTLED} or more in the second half of training. Drift: the "
        "median change. Fitted and foretold: mean 1 - cos of W with W_SVMeq, with the finite part fitted to W or "
        "predicted, over runs whose sets are all determined."
    )


_STATEMENT = "Inside the selected sets, descent converges to finite attention ratios that the problem determines ({})."
CLAIMS = (
    Claim(
        "finite-part:quadratic",
        _SOURCE,
        _STATEMENT.format(HEADS["quadratic"]),
        _judge_quadratic,
        examples.of_quadratic,
    ),
    Claim("finite-part:ReLU", _SOURCE, _STATEMENT.format(HEADS["ReLU"]), _judge_relu, examples.of_relu),
)
