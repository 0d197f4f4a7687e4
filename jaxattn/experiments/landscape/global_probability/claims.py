"""How often descent selects the optimal tokens, by d, n and T, and compared with an independent run of the protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray

from jaxattn.experiments.landscape.global_probability.independent import Compared, by_chance, compared
from jaxattn.experiments.landscape.outcomes import WEIGHTS, by_weights
from jaxattn.experiments.landscape.rising import Curve, Point, trend
from jaxattn.study.claims import LEAST_STEPS, Datasets, Judgement, Needs, Setting, Source, claim, counts_of
from jaxattn.study.claims.criteria import Criterion, Number, below, between
from jaxattn.study.estimates import estimated, exact, number, share

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
_NEEDS = Needs(steps=LEAST_STEPS)


def estimate(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Estimate the probability. A run that has not saturated has selected nothing and is not globally optimal."""
    return estimated(run, key, **{"global": share(run["saturated"] & run["globally"])}, seeds=exact(run.sizes["seed"]))


@claim(
    "global-probability:d",
    _SOURCE,
    "The probability that descent selects the optimal tokens rises with d, to 1.",
    needs=_NEEDS,
)
def _along_d(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    along_d = [curve for summary in summaries.values() for curve in curves(summary, "d")]
    rise = trend(along_d, up=True)
    rises = rise.criteria("increase from the smallest to the largest d", _POINTS)
    gaps = {curve[-1].run: _gap(curve) for curve in along_d}
    farthest = Number(*map(max, zip(*gaps.values(), strict=True))) if gaps else Number.exact(math.nan)
    on_their_way = [run for run, gap in gaps.items() if gap.high > _MISSED]
    return Judgement(
        # As much as the curves along n and T must fall, and to 1.
        (*rises, below("gap of the probability to 1 for large d, largest over curves,", farthest, _MISSED)),
        rises,
        correction=f"it rises. On {len(on_their_way)} of {len(along_d)} curves the gap to 1 at the largest d may "
        f"exceed {_MISSED:g}: {'; '.join(on_their_way) or 'none'}.",
        remark=f"{rise.remark(_POINTS)} The gap to 1 at the largest d is an upper bound of the gap in the limit. It "
        "is also a lower bound if it has levelled off, falling by less than a fifth as d doubles.",
        numbers=_probabilities(summaries),
        undecided=rise.undecided,
    )


def _gap(curve: Curve) -> Number:
    """Return the gap of a curve to 1 in the limit: at most its final gap, and at least that or zero."""
    before, last = (Number(1 - point.share.mean, 1 - point.share.high, 1 - point.share.low) for point in curve[-2:])
    if last.mean <= 0 or before.mean <= 0:
        return Number(max(last.mean, 0.0), 0.0, last.high)
    logarithms = (Number(*(math.log(max(end, 1e-12)) for end in gap)) for gap in (last, before))
    rests = math.exp(Number.minus(*logarithms).low) >= _AT_REST
    return Number(last.mean, last.low if rests else 0.0, last.high)


@claim(
    "global-probability:n",
    _SOURCE,
    "The probability that descent selects the optimal tokens falls with n.",
    needs=_NEEDS,
)
def _along_n(runs: Datasets) -> Judgement:
    return _falls(runs, "n")


@claim(
    "global-probability:T",
    _SOURCE,
    "The probability that descent selects the optimal tokens falls with T.",
    needs=_NEEDS,
)
def _along_T(runs: Datasets) -> Judgement:
    return _falls(runs, "T")


def _falls(runs: Datasets, along: str) -> Judgement:
    summaries = by_weights(runs)
    fall = trend([curve for summary in summaries.values() for curve in curves(summary, along)], up=False)
    return Judgement(
        fall.criteria(f"decrease from the smallest to the largest {along}", _POINTS),
        remark=fall.remark(_POINTS),
        numbers=_probabilities(summaries),
        undecided=fall.undecided,
    )


def curves(summary: xarray.Dataset, along: str) -> list[Curve]:
    """Split the runs by their other sizes, sorted by this one; runs without the smallest size form no curve."""
    others = [name for name in "nTd" if name != along]
    sizes = np.stack([summary[name].values for name in others], axis=1)
    parts = [summary.isel(run=(sizes == fixed).all(axis=1)).sortby(along) for fixed in np.unique(sizes, axis=0)]
    least = summary[along].min()
    return [list(_points(part)) for part in parts if part.sizes["run"] > 1 and part[along][0] == least]


def _points(summary: xarray.Dataset) -> Iterable[Point]:
    return (Point(str(run), number(summary.sel(run=run), "global")) for run in summary["run"].values)


@claim(
    "global-probability:independent",
    _INDEPENDENT,
    "The probabilities agree with those of an independent run of the same protocol.",
    needs=_NEEDS,
)
def _independent(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    off = compared(summaries)
    if not off:
        return Judgement.withheld("No run has the sizes of one of the independent run.")
    beyond = {run: difference.errors for run, difference in off.items() if abs(difference.errors) > BEYOND}
    allowed = by_chance(len(off))
    far = max(abs(difference.errors) for difference in off.values())
    listed = "; ".join(f"{run} by {errors:+.1f}" for run, errors in beyond.items())
    probabilities = _probabilities(summaries)
    parts = {
        weights: [difference for difference in off.values() if difference.weights == weights] for weights in WEIGHTS
    }
    return Judgement(
        (
            below(
                f"probabilities that differ by more than {BEYOND} standard errors", Number.exact(len(beyond)), allowed
            ),
            below("largest difference of a probability, in standard errors,", Number.exact(far), _FAR),
            *(_close(weights, part) for weights, part in parts.items() if part),
        ),
        remark=f"{len(beyond)} of {len(off)} probabilities differ by more than {BEYOND} standard errors of the "
        "difference"
        + (f" ({listed})" if listed else "")
        + f". If nothing differed, chance would give at most {allowed} in 95 of 100 cases.",
        numbers={run: probabilities[run] for run in off},
        expected={run: difference.share for run, difference in off.items()},
        counts=counts_of({run: runs[run] for run in off}),
    )


def _close(weights: str, off: list[Compared]) -> Criterion:
    """Ask for a small mean difference, separately for W and (K, Q), which are trained on the same problems."""
    mean = math.fsum(each.difference for each in off) / len(off)
    half = 2 * math.sqrt(math.fsum(each.error**2 for each in off)) / len(off)
    quantity = f"mean difference of {len(off)} probabilities from the independent run, {weights},"
    return between(quantity, Number(mean, mean - half, mean + half), -_WITHIN, _WITHIN)


def _probabilities(summaries: Datasets) -> dict[str, Number]:
    return {point.run: point.share for summary in summaries.values() for point in _points(summary)}


CLAIMS = (_along_d, _along_n, _along_T, _independent)
