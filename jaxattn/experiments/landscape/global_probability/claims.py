"""How often descent selects the optimal tokens, by d, n and T, and compared with an independent run of the protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.landscape.global_probability import examples
from jaxattn.experiments.landscape.global_probability.independent import Compared, by_chance, compared
from jaxattn.experiments.landscape.outcomes import WEIGHTS, by_weights, counts_by_run
from jaxattn.experiments.landscape.rising import Curve, Point, trend
from jaxattn.statistics import proportion
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
    too_short,
    total,
)

# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = Source("arXiv 2308.16898", "figure of the probability of global convergence", Setting.PROXY)
_INDEPENDENT = Source("an independent run of the protocol of arXiv 2308.16898", "100 seeds, 1500 steps", Setting.EXACT)
# Fixed beforehand: a difference counts if it exceeds the first number of standard errors; none may exceed the second.
BEYOND, _FAR = 2, 4
# Fixed beforehand: the largest difference of the mean probability from that of the independent run, by its interval.
_WITHIN = 0.05
# Fixed beforehand: a probability counts as 1 if it is within this distance of 1. A larger gap is either still closing,
# or has levelled off if it falls by less than a fifth from one d to the next, which is twice as large.
_MISSED, _AT_REST = 0.05, 0.8
_POINTS = "neighbouring points"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the probabilities.

    A run that has not saturated has selected nothing and counts as not globally optimal.

    Args:
        datasets: of `measure`, of W and of (K, Q) over n, T and d.
        key: not used; the intervals of shares are not resampled.

    Returns:
        For "W" and "KQ" a dataset with axis `run`: n, T, d, the probability with its interval, and the counts. Its
        attributes are the sums of the counts, and the smallest number of steps of a run.

    Raises:
        ValueError: a run of which no seed stayed finite, or no run of W or of (K, Q).
    """
    del key
    summaries = {}
    for weights, own in by_weights(datasets, "a finite seed").items():
        parts = [_share(one) for one in sorted(own.values(), key=lambda one: [one.attrs[name] for name in "nTd"])]
        told = total(own) | {"steps": min(one.attrs["steps"] for one in own.values())}
        summaries[weights] = xarray.concat(parts, "run", coords="all").assign_attrs(told)
    return summaries


def _share(one: xarray.Dataset) -> xarray.Dataset:
    estimate = proportion((one["saturated"] & one["globally"]).values)
    variables = {"global": estimate.mean, "global_low": estimate.low, "global_high": estimate.high}
    variables |= counts_of({"": one})[""]
    sizes = {name: one.attrs[name] for name in ("run", "n", "T", "d")}
    return xarray.Dataset(
        {name: ((), value) for name, value in variables.items()}, {**sizes, "seeds": one.sizes["seed"]}
    )


def _judge_d(summaries: Datasets) -> Judgement:
    """Every curve must rise, as much as those along n and T must fall, and reach 1; as corrected, it must rise."""
    along_d = [curve for summary in summaries.values() for curve in curves(summary, "d")]
    found = trend(along_d, up=True)
    rises = found.criteria("increase from the smallest to the largest d", _POINTS)
    limits = {curve[-1].run: _missed(curve) for curve in along_d}
    farthest = Number(*map(max, zip(*limits.values(), strict=True))) if limits else Number.exact(math.nan)
    on_their_way = [run for run, one in limits.items() if one.high > _MISSED]
    return _judgement(
        summaries,
        _named(summaries),
        stated=(*rises, below("gap of the probability to 1 for large d, largest over curves,", farthest, _MISSED)),
        corrected=rises,
        correction=f"it rises. On {len(on_their_way)} of {len(along_d)} curves the gap to 1 at the largest d may "
        f"exceed {_MISSED:g}: {'; '.join(on_their_way) or 'none'}.",
        undecided=found.undecided,
        remark=f"{found.remark(_POINTS)} The gap to 1 at the largest d is an upper bound of the gap in the limit. It "
        "is also a lower bound if it has levelled off, falling by less than a fifth as d doubles.",
    )


def _missed(curve: Curve) -> Number:
    """Return the gap of a curve to 1 in the limit: at most its final gap, and at least that or zero."""
    before, last = (Number(1 - one.share.mean, 1 - one.share.high, 1 - one.share.low) for one in curve[-2:])
    if last.mean <= 0 or before.mean <= 0:
        return Number(max(last.mean, 0.0), 0.0, last.high)
    logarithms = (Number(*(math.log(max(end, 1e-12)) for end in one)) for one in (last, before))
    rests = math.exp(Number.minus(*logarithms).low) >= _AT_REST
    return Number(last.mean, last.low if rests else 0.0, last.high)


def _judge_n(summaries: Datasets) -> Judgement:
    """On every curve the ends must differ, with the larger n below; no neighbours may differ in the other direction."""
    return _judge_along(summaries, "n", up=False)


def _judge_T(summaries: Datasets) -> Judgement:
    """On every curve the ends must differ, with the larger T below; no neighbours may differ in the other direction."""
    return _judge_along(summaries, "T", up=False)


def _judge_along(summaries: Datasets, along: str, up: bool) -> Judgement:
    found = trend([curve for summary in summaries.values() for curve in curves(summary, along)], up)
    return _judgement(
        summaries,
        _named(summaries),
        stated=found.criteria(f"{'increase' if up else 'decrease'} from the smallest to the largest {along}", _POINTS),
        undecided=found.undecided,
        remark=found.remark(_POINTS),
    )


def curves(summary: xarray.Dataset, along: str) -> list[Curve]:
    """Split the runs by their other sizes, sorted by this one; runs without the smallest size form no curve."""
    others = [name for name in "nTd" if name != along]
    sizes = np.stack([summary[name].values for name in others], axis=1)
    parts = [summary.isel(run=(sizes == one).all(axis=1)).sortby(along) for one in np.unique(sizes, axis=0)]
    least = summary[along].min()
    return [list(_points(part)) for part in parts if part.sizes["run"] > 1 and part[along][0] == least]


def _points(summary: xarray.Dataset) -> Iterable[Point]:
    return (Point(str(run), number(summary.sel(run=run), "global")) for run in summary["run"].values)


def _judge_independent(summaries: Datasets) -> Judgement:
    """Not more probabilities may differ than by chance, none by much, and the means must be close."""
    off = compared(summaries)
    if not off:
        return Judgement.withheld("No run has the sizes of one of the independent run.")
    beyond = {run: one.errors for run, one in off.items() if abs(one.errors) > BEYOND}
    allowed = by_chance(len(off))
    far = max(abs(one.errors) for one in off.values())
    listed = "; ".join(f"{run} by {errors:+.1f}" for run, errors in beyond.items())
    shares = _named(summaries)
    parts = {weights: [one for one in off.values() if one.weights == weights] for weights in WEIGHTS}
    return _judgement(
        summaries,
        {run: shares[run] for run in off},
        expected={run: one.share for run, one in off.items()},
        stated=(
            below(
                f"probabilities that differ by more than {BEYOND} standard errors", Number.exact(len(beyond)), allowed
            ),
            below("largest difference of a probability, in standard errors,", Number.exact(far), _FAR),
            *(_close(weights, part) for weights, part in parts.items() if part),
        ),
        remark=(
            f"{len(beyond)} of {len(off)} probabilities differ by more than {BEYOND} standard errors of the difference"
        )
        + (f" ({listed})" if listed else "")
        + f". If nothing differed, chance would give at most {allowed} in 95 of 100 cases.",
    )


def _close(weights: str, off: list[Compared]) -> Criterion:
    """Ask for a small mean difference, separately for W and (K, Q), which are trained on the same problems."""
    mean = math.fsum(one.difference for one in off) / len(off)
    half = 2 * math.sqrt(math.fsum(one.error**2 for one in off)) / len(off)
    said = f"mean difference of {len(off)} probabilities from the independent run, {weights},"
    return between(said, Number(mean, mean - half, mean + half), -_WITHIN, _WITHIN)


def _named(summaries: Datasets) -> dict[str, Number]:
    return {point.run: point.share for summary in summaries.values() for point in _points(summary)}


def _judgement(
    summaries: Datasets,
    shares: Mapping[str, Number],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    expected: Mapping[str, float] | None = None,
    undecided: str = "",
    remark: str = "",
) -> Judgement:
    """Return the judgement; it decides nothing if a run was too short or has too few finite seeds."""
    steps = min(int(one.attrs["steps"]) for one in summaries.values())
    seeds = min(int(one["seeds"].min()) for one in summaries.values())
    counts = counts_by_run(summaries)
    return Judgement(
        numbers=shares,
        expected=expected or {},
        counts={run: counts[run] for run in shares},
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=too_short(steps) or too_few(seeds) or undecided,
        remark=remark,
    )


CLAIMS = (
    Claim(
        "global-probability:d",
        _SOURCE,
        "The probability that descent selects the optimal tokens rises with d, to 1.",
        _judge_d,
        examples.of_d,
    ),
    Claim(
        "global-probability:n",
        _SOURCE,
        "The probability that descent selects the optimal tokens falls with n.",
        _judge_n,
        examples.of_n,
    ),
    Claim(
        "global-probability:T",
        _SOURCE,
        "The probability that descent selects the optimal tokens falls with T.",
        _judge_T,
        examples.of_T,
    ),
    Claim(
        "global-probability:independent",
        _INDEPENDENT,
        "The probabilities agree with those of an independent run of the same protocol.",
        _judge_independent,
        examples.of_independent,
    ),
)
