"""How often descent selects the optimal tokens, along d, n and T, and beside an independent run of the protocol."""

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
from jaxattn.study.statistics import proportion

# The published figure is not at hand; what it shows is known, its sizes are chosen.
_SOURCE = Source("arXiv 2308.16898", "figure of the probability of global convergence", Setting.PROXY)
_INDEPENDENT = Source("an independent run of the protocol of arXiv 2308.16898", "100 seeds, 1500 steps", Setting.EXACT)
# Fixed beforehand: a difference counts as one beyond the first number of standard errors, and none may be beyond the
# second.
_BEYOND, _FAR = 2, 4
# Fixed beforehand: as close as the mean of probabilities has to be to that of the independent run, by its interval.
_WITHIN = 0.05
# Fixed beforehand: a probability is at 1 if it misses at most so much. One that misses more is on its way there, or has
# come to rest if what it misses falls by less than a fifth from one d to the next, twice as large.
_MISSED, _AT_REST = 0.05, 0.8
_POINTS = "neighbouring points"


def summarize(datasets: Datasets, key: PRNGKeyArray) -> dict[str, xarray.Dataset]:
    """Estimate the probabilities.

    A run that has not saturated has selected nothing, and counts as not globally optimal.

    Args:
        datasets: of `measure`, of W and of (K, Q) over n, T and d.
        key: not used; the intervals of shares are not resampled.

    Returns:
        For "W" and "KQ" a dataset with axis `run`: n, T, d, the probability with its interval, and the counts. Its
        attributes are the sums of the counts, and the fewest steps of a run.

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
    """Every curve has to rise, as those along n and T to fall, and to arrive at 1; failing that, to rise."""
    curves = [curve for summary in summaries.values() for curve in _curves(summary, "d")]
    found = trend(curves, up=True)
    rises = found.criteria("rise from the smallest d to the largest", _POINTS)
    limits = {curve[-1].run: _missed(curve) for curve in curves}
    farthest = Number(*map(max, zip(*limits.values(), strict=True))) if limits else Number.exact(math.nan)
    on_their_way = [run for run, one in limits.items() if one.high > _MISSED]
    return _judgement(
        summaries,
        _named(summaries),
        stated=(*rises, below("what the probability misses to 1 as d grows, most of all curves,", farthest, _MISSED)),
        corrected=rises,
        correction=f"it rises. On {len(on_their_way)} of {len(curves)} curves more than {_MISSED:g} may be missing to "
        f"1 at the end: {'; '.join(on_their_way) or 'none'}.",
        undecided=found.undecided,
        remark=f"{found.remark(_POINTS)} What is missing to 1 at the end of a curve bounds what is missing in the "
        "limit from above, and from below only where it has come to rest, falling by less than a fifth as d doubles.",
    )


def _missed(curve: Curve) -> Number:
    """Return what a curve misses to 1 in the limit: at most what it does at its end, at least nothing or just that."""
    before, last = (Number(1 - one.share.mean, 1 - one.share.high, 1 - one.share.low) for one in curve[-2:])
    if last.mean <= 0 or before.mean <= 0:
        return Number(max(last.mean, 0.0), 0.0, last.high)
    logarithms = (Number(*(math.log(max(end, 1e-12)) for end in one)) for one in (last, before))
    rests = math.exp(Number.minus(*logarithms).low) >= _AT_REST
    return Number(last.mean, last.low if rests else 0.0, last.high)


def _judge_n(summaries: Datasets) -> Judgement:
    """On every curve the ends have to be apart, the larger n below; no neighbours may be apart the other way."""
    return _judge_along(summaries, "n", up=False)


def _judge_T(summaries: Datasets) -> Judgement:
    """On every curve the ends have to be apart, the larger T below; no neighbours may be apart the other way."""
    return _judge_along(summaries, "T", up=False)


def _judge_along(summaries: Datasets, along: str, up: bool) -> Judgement:
    found = trend([curve for summary in summaries.values() for curve in _curves(summary, along)], up)
    return _judgement(
        summaries,
        _named(summaries),
        stated=found.criteria(f"{'rise' if up else 'fall'} from the smallest {along} to the largest", _POINTS),
        undecided=found.undecided,
        remark=found.remark(_POINTS),
    )


def _curves(summary: xarray.Dataset, along: str) -> list[Curve]:
    """Split the runs by their other sizes, from the smallest to the largest; what has not the smallest is no curve."""
    others = [name for name in "nTd" if name != along]
    sizes = np.stack([summary[name].values for name in others], axis=1)
    parts = [summary.isel(run=(sizes == one).all(axis=1)).sortby(along) for one in np.unique(sizes, axis=0)]
    least = summary[along].min()
    return [list(_points(part)) for part in parts if part.sizes["run"] > 1 and part[along][0] == least]


def _points(summary: xarray.Dataset) -> Iterable[Point]:
    return (Point(str(run), number(summary.sel(run=run), "global")) for run in summary["run"].values)


def _judge_independent(summaries: Datasets) -> Judgement:
    """No more single probabilities may differ than by chance, none by far, and the mean ones have to be close."""
    off = compared(summaries)
    if not off:
        return Judgement.withheld("No run has the sizes of one of the independent run.")
    beyond = {run: one.errors for run, one in off.items() if abs(one.errors) > _BEYOND}
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
                f"probabilities beyond {_BEYOND} standard errors of the difference", Number.exact(len(beyond)), allowed
            ),
            below("largest difference of a probability, in its standard error,", Number.exact(far), _FAR),
            *(_close(weights, part) for weights, part in parts.items() if part),
        ),
        remark=f"{len(beyond)} of {len(off)} differ by more than {_BEYOND} standard errors of the difference"
        + (f" ({listed})" if listed else "")
        + f". Chance gives at most {allowed} in 95 of 100 cases where nothing differs.",
    )


def _close(weights: str, off: list[Compared]) -> Criterion:
    """Ask for a small mean difference; W and (K, Q) are trained on the same problems, so each for itself."""
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
        measured={run: share.mean for run, share in shares.items()},
        interval={run: (share.low, share.high) for run, share in shares.items()},
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
        "The probabilities are those of an independent run of the same protocol.",
        _judge_independent,
        examples.of_independent,
    ),
)
