"""Descent on factors of few columns (2308.16898): where the rank constraint is active, and what is reached."""

from __future__ import annotations

import itertools

import jax
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn import svm
from jaxattn.experiments.local.factor_width import examples
from jaxattn.statistics import bootstrap, proportion, variables
from jaxattn.study.claims import (
    LEAST_DRAWN,
    Claim,
    Criterion,
    Datasets,
    Judgement,
    Number,
    Setting,
    Source,
    above,
    below,
    counts_of,
    number,
    too_little,
)

_SOURCE = Source("arXiv 2308.16898", "nuclear Att-SVM with rank W <= m", Setting.OURS)
_NAMES = {"nuclear": "nuclear solution", "bounded": "best of rank m found", "nearest": "stationary point reached"}
# Certified solutions agree only to this relative accuracy, so a smaller increase of the norm cannot be detected.
SAME = svm.DOUBLE.gap
# Fixed beforehand: the thresholds for the mean largest probability and the mean correlation, and how much nearer the
# stationary point reached may be than the best one found for the two to count as the same.
_SATURATED, REACHED, AS_GOOD = 0.999, 0.95, 0.01


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate what descent reaches at every width.

    Args:
        datasets: of `measure`, of several widths.
        key: of the bootstrap.

    Returns:
        For each width, in increasing order, a dataset of means with their intervals: `correlation` (solution),
        `probability` (snapshot), and `advantage` (), the correlation with the stationary point reached minus the
        correlation with the best one found, paired by seed; and each seed's `rank` and `excess`.

    Raises:
        ValueError: no run, or one of which no seed was kept.
    """
    empty = [run for run, one in datasets.items() if not one.sizes["seed"]]
    if empty or not datasets:
        raise ValueError(f"factor-width: expected runs with a kept seed in each, found none in {empty or 'any'}")
    ordered = dict(sorted(datasets.items(), key=lambda item: item[1].attrs["width"]))
    keys = iter(jax.random.split(key, 2 * len(ordered)))
    return {run: _summary(one, next(keys), next(keys)) for run, one in ordered.items()}


def _summary(one: xarray.Dataset, correlation_key: PRNGKeyArray, probability_key: PRNGKeyArray) -> xarray.Dataset:
    of_end = one["correlation"]
    advantage = of_end.sel(solution="nearest").values - of_end.sel(solution="bounded").values
    estimates = {
        "correlation": (("solution",), bootstrap(of_end.values, correlation_key)),
        "probability": (("snapshot",), bootstrap(one["probability"].values, probability_key)),
        "advantage": ((), bootstrap(advantage, jax.random.fold_in(correlation_key, 1))),
    }
    return one.drop_vars(["correlation", "probability"]).assign(variables(estimates))


def _judge_binds(summaries: Datasets) -> Judgement:
    """The bound must raise the norm for every seed whose nuclear solution has a rank above m, and for no other seed."""
    numbers, expected = {}, {}
    exceptions = {True: 0, False: 0}
    for (run, one), above_m in itertools.product(summaries.items(), (True, False)):
        binding = one["excess"].values[(one["rank"].values > one.attrs["width"]) == above_m] > SAME
        if binding.size:
            side = "above" if above_m else "up to"
            label = f"{run}, share where the constraint is active, {binding.size} seeds of rank {side} m"
            share = proportion(binding)
            numbers[label], expected[label] = Number(*map(float, share[:3])), float(above_m)
            exceptions[above_m] += int((binding != above_m).sum())
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(summaries),
        stated=(
            below("seeds of rank up to m where the bound raises the norm", Number.exact(exceptions[False]), 0),
            below("seeds of rank above m where the bound does not raise it", Number.exact(exceptions[True]), 0),
        ),
        undecided=_too_little(summaries) or _too_few(summaries, True) or _too_few(summaries, False),
        remark="The constraint is active if the best solution of rank m found has a norm larger by more than a "
        f"relative {SAME:g}. For ranks up to m this solution is certified optimal. For ranks above m it is the "
        "best of several stationary points, so its excess is an upper bound.",
    )


def _judge_reaches(summaries: Datasets) -> Judgement:
    """Descent must saturate and reach the best point of rank m; as corrected, any stationary point of rank m."""
    numbers = {
        f"{run}, correlation, {name}": number(one.sel(solution=solution), "correlation")
        for (run, one), (solution, name) in itertools.product(summaries.items(), _NAMES.items())
    }
    stationary = [criterion for run, one in summaries.items() for criterion in _reaches_a_point(run, one)]
    best = [
        below(f"{run}, correlation, {_NAMES['nearest']} minus {_NAMES['bounded']},", number(one, "advantage"), AS_GOOD)
        for run, one in summaries.items()
    ]
    run, worst = max(summaries.items(), key=lambda item: float(item[1]["advantage"]))
    reached, found = (float(worst["correlation"].sel(solution=solution)) for solution in ("nearest", "bounded"))
    return Judgement(
        numbers=numbers,
        expected={label: 1.0 for label in numbers if "nuclear" not in label},
        counts=counts_of(summaries),
        stated=(*stationary, *best),
        corrected=tuple(stationary),
        correction="descent converges in direction to a stationary point of the rank-constrained problem, which "
        f"need not be its solution. The difference is largest at {run}: the mean correlation is {reached:.3f} with the "
        f"stationary point reached by descent and {found:.3f} with the best one found.",
        undecided=_too_little(summaries) or _too_few(summaries, True),
    )


def _reaches_a_point(run: str, one: xarray.Dataset) -> tuple[Criterion, Criterion]:
    saturation, correlation = (
        number(one.isel(snapshot=-1), "probability"),
        number(one.sel(solution="nearest"), "correlation"),
    )
    return (
        above(f"{run}, mean largest probability at the last step,", saturation, _SATURATED),
        above(f"{run}, correlation, {_NAMES['nearest']},", correlation, REACHED),
    )


def _too_little(summaries: Datasets) -> str:
    return next(filter(None, map(too_little, summaries.values())), "")


def _too_few(summaries: Datasets, above_m: bool) -> str:
    """Return why too few seeds test the constraint, with rank above m or with rank up to an m below d."""
    narrow = [one for one in summaries.values() if one.attrs["width"] < one.attrs["d"]]
    seeds = sum(int(((one["rank"].values > one.attrs["width"]) == above_m).sum()) for one in narrow)
    if seeds >= LEAST_DRAWN:
        return ""
    of = "of rank above m" if above_m else "of rank up to an m less than d"
    return f"{seeds} kept seeds {of} are too few to decide; at least {LEAST_DRAWN} are needed."


CLAIMS = (
    Claim(
        "factor-width:binds",
        _SOURCE,
        "The bound rank W <= m changes the nuclear Att-SVM only where m is below the rank of its solution.",
        _judge_binds,
        examples.of_binds,
    ),
    Claim(
        "factor-width:reaches",
        _SOURCE,
        "Descent on factors of m columns saturates, and tends to the solution of the nuclear Att-SVM with rank W <= m.",
        _judge_reaches,
        examples.of_reaches,
    ),
)
