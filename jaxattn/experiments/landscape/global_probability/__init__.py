"""How often does descent select the optimal tokens, by d, n and T, and compared with an independent run?"""

from __future__ import annotations

import math
from itertools import cycle

import numpy as np
import xarray
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxattn.experiments.landscape.global_probability.independent import SEEDS, Compared, by_chance, compared
from jaxattn.experiments.landscape.global_probability.measure import measure
from jaxattn.experiments.landscape.outcomes import WEIGHTS, by_weights
from jaxattn.experiments.landscape.rising import Curve, points, trend
from jaxattn.study import claims
from jaxattn.study.claims import Claim, Datasets, Experiment, Judgement, Judgements, Number, below, between, claim
from jaxattn.study.estimates import estimated, exact, share
from jaxattn.study.style import page, palette

# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = claims.Source("arXiv 2308.16898", "figure of the probability of global convergence", claims.Setting.PROXY)
_INDEPENDENT = claims.Source(
    "an independent run of the protocol of arXiv 2308.16898", "100 seeds, 1500 steps", claims.Setting.EXACT
)
# Fixed beforehand: a difference counts if it exceeds the first number of standard errors; none may exceed the second.
_BEYOND, _FAR = 2, 4
# Fixed beforehand: the largest difference of the mean probability from that of the independent run, by its interval.
_NO_MORE = -0.05, 0.05
# Fixed beforehand: a probability counts as 1 if it is within this distance of 1. A larger gap is either still closing,
# or has levelled off if it falls by less than a fifth from one d to the next, which is twice as large. A curve on which
# all probabilities count as 1 cannot show whether they fall with n or T; that it is not judged was decided later.
_MISSED, _AT_REST = 0.05, 0.8
_POINTS = "neighbouring points"
_NEEDS = claims.Needs(steps=claims.LEAST_STEPS)


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
    along_d = [curve for summary in summaries.values() for curve in _curves(summary, "d")]
    rise = trend(along_d, up=True)
    rises = rise.criteria("increase from the smallest to the largest d", _POINTS)
    gaps = {curve[-1].run: _gap(curve) for curve in along_d}
    farthest = Number(*map(max, zip(*gaps.values(), strict=True)))
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


def _falls_along(size: str) -> Claim:
    statement = f"The probability that descent selects the optimal tokens falls with {size}."

    @claim(f"global-probability:{size}", _SOURCE, statement, needs=_NEEDS)
    def rule(runs: Datasets) -> Judgement:
        summaries = by_weights(runs)
        curves = [curve for summary in summaries.values() for curve in _curves(summary, size)]
        level = [curve for curve in curves if all(point.share.low >= 1 - _MISSED for point in curve)]
        fall = trend([curve for curve in curves if curve not in level], up=False)
        unresolved = "; ".join(curve[-1].run for curve in level)
        return Judgement(
            fall.criteria(f"decrease from the smallest to the largest {size}", _POINTS),
            remark=fall.remark(_POINTS)
            + (f" Not judged, as all probabilities are {1 - _MISSED:g} to 1: to {unresolved}." if level else ""),
            numbers=_probabilities(summaries),
            undecided=fall.undecided,
        )

    return rule


def _curves(summary: xarray.Dataset, along: str) -> list[Curve]:
    """Split the runs by their other sizes, sorted by this one; runs without the smallest size form no curve."""
    others = [name for name in "nTd" if name != along]
    sizes = np.stack([summary[name].values for name in others], axis=1)
    parts = [summary.isel(run=(sizes == fixed).all(axis=1)).sortby(along) for fixed in np.unique(sizes, axis=0)]
    least = summary[along].min()
    return [points(part, "global") for part in parts if part.sizes["run"] > 1 and part[along][0] == least]


def _probabilities(summaries: Datasets) -> dict[str, Number]:
    return dict(point for summary in summaries.values() for point in points(summary, "global"))


@claim(
    "global-probability:independent",
    _INDEPENDENT,
    "The probabilities agree with those of an independent run of the same protocol.",
    needs=_NEEDS,
)
def _independent(runs: Datasets) -> Judgement:
    summaries = by_weights(runs)
    off = compared(summaries)
    beyond = [f"{run} by {each.errors:+.1f}" for run, each in off.items() if abs(each.errors) > _BEYOND]
    listed = f" ({'; '.join(beyond)})" if beyond else ""
    allowed = by_chance(len(off))
    far = Number.exact(max(abs(each.errors) for each in off.values()))
    probabilities = _probabilities(summaries)
    mean = {
        weights: _mean_difference([each for each in off.values() if each.weights == weights]) for weights in WEIGHTS
    }
    widest = max((number.high - number.low) / 2 for number in mean.values())
    return Judgement(
        (
            below(
                f"probabilities that differ by more than {_BEYOND} standard errors", Number.exact(len(beyond)), allowed
            ),
            below("largest difference of a probability, in standard errors,", far, _FAR),
            *(
                between(f"mean difference of the probabilities from the independent run, {weights},", number, *_NO_MORE)
                for weights, number in mean.items()
            ),
        ),
        remark=f"{len(beyond)} of {len(off)} probabilities differ by more than {_BEYOND} standard errors of the "
        f"difference{listed}. If nothing differed, chance would give at most {allowed} in 95 of 100 cases. The "
        f"independent run has {SEEDS} seeds, so that a single probability is told apart from its own only if it is off "
        f"by more than {_BEYOND * max(each.error for each in off.values()):.2f} in the middle of the range, and the "
        f"mean of those of W or of (K, Q) only if it is off by more than {widest:.3f}. Its shares are copied from that "
        "run and are in no text of the paper.",
        numbers={run: probabilities[run] for run in off},
        expected={run: each.share for run, each in off.items()},
        counts=claims.counts_of({run: runs[run] for run in off}),
    )


def _mean_difference(off: list[Compared]) -> Number:
    """Return the mean difference, separate for W and (K, Q), which are trained on the same problems."""
    mean = math.fsum(each.difference for each in off) / len(off)
    half = 2 * math.sqrt(math.fsum(each.error**2 for each in off)) / len(off)
    return Number(mean, mean - half, mean + half)


_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}
_LABEL = f"independent run of the protocol, {SEEDS} seeds"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row of two panels for W and one for (K, Q), over the number of inputs n and over that of tokens T."""
    summaries = by_weights(summaries)
    seeds = [int(number) for summary in summaries.values() for number in summary["seeds"].values]
    off = compared(summaries)
    beyond = sum(abs(each.errors) > _BEYOND for each in off.values())
    with page.style():
        figure = page.full(5.7)
        # A decade of d is equally long in all panels.
        dimensions = [np.unique(_smallest(summaries["W"], fixed)["d"].values) for fixed in "Tn"]
        lengths = [max(0.3, np.ptp(np.log(d)) + 0.25) for d in dimensions]
        grid = figure.subplots(2, 2, sharey=True, sharex="col", width_ratios=lengths)
        verdict = judgements["global-probability:d"].verdict
        figure.suptitle(f"The probability that descent selects the optimal tokens rises with $d$, to 1: {verdict}")
        panels = [(weights, along, fixed) for weights in summaries for along, fixed in ("nT", "Tn")]
        for axes, letter, (weights, along, fixed) in zip(grid.flat, "abcd", panels, strict=True):
            runs = _smallest(summaries[weights], fixed)
            _draw_curves(axes, runs, along, weights)
            _draw_independent(axes, runs, weights, along)
            _mark_level(axes, runs, along)
            verdict = judgements[f"global-probability:{along}"].verdict
            setting = f"training {_TRAINED[weights]}, ${fixed} = {int(runs[fixed][0])}$"
            axes.set_title(f'({letter}) {setting}: "falls with ${along}$" {verdict}')
            # The independent run is in the keys of the wide panels, where there is room for it.
            handles = axes.get_legend_handles_labels()[0]
            shown = [handle for handle in handles if along == "T" or handle.get_label() != _LABEL]
            axes.legend(handles=shown, loc="lower right")
        for axes, d in zip(grid[1], dimensions, strict=True):
            axes.set(xlabel="dimension $d$", xscale="log", ylim=(-0.02, 1.04))
            axes.set_xticks(d, [f"{size}" for size in d])
            axes.minorticks_off()
        for axes in grid[:, 0]:
            axes.set_ylabel("probability of the optimal tokens")
        page.add_counts(
            figure,
            summaries,
            "Ambiguous: softmax not saturated, counts as not optimal. Coloured bars: 95 % intervals, "
            f"{min(seeds):,} to {max(seeds):,} seeds. Bars of the diamonds, in the colour of their curve: {_BEYOND} "
            f"standard errors of the difference from the independent run. {beyond} of {len(off)} differences are "
            f"larger; chance gives up to {by_chance(len(off))} (95 % of cases).",
        )
    return figure


def _smallest(summary: xarray.Dataset, size: str) -> xarray.Dataset:
    """Return the runs in which a size is smallest."""
    return summary.isel(run=(summary[size] == summary[size].min()).values)


def _draw_curves(axes: Axes, runs: xarray.Dataset, along: str, weights: str) -> None:
    sizes = np.unique(runs[along].values)
    for size, colour, marker in zip(sizes, palette.ramp(len(sizes)), cycle("os^Dv"), strict=False):
        curve = runs.isel(run=(runs[along] == size).values).sortby("d")
        shares = (curve[f"global{part}"].values for part in ("", "_low", "_high"))
        look = {"color": colour, "marker": marker, "markersize": 3.5, "linestyle": palette.DASHES[weights]}
        page.bars(axes, curve["d"].values, *shares, label=f"${along} = {size}$", **look)


def _mark_level(axes: Axes, runs: xarray.Dataset, along: str) -> None:
    """Say where all probabilities count as 1, so that a fall cannot be seen."""
    smallest = set(runs["d"].values[runs[along].values == runs[along].values.min()])
    for d, of_d in runs.groupby("d"):
        if d in smallest and float(of_d["global_low"].min()) >= 1 - _MISSED:
            look = {"fontsize": page.SMALLEST, "ha": "right", "va": "top", "color": palette.NOTE}
            axes.annotate(f"unresolved\nat $d = {d}$", (float(d), 0.95), (4, -4), textcoords="offset points", **look)


def _draw_independent(axes: Axes, runs: xarray.Dataset, weights: str, along: str) -> None:
    """Mark the probabilities of the independent run, each with two standard errors of the difference from it."""
    off = compared({weights: runs})
    d = 1.035 * runs["d"].sel(run=[*off]).values
    share, error = np.array([(each.share, each.error) for each in off.values()]).T
    ends = np.clip([share - _BEYOND * error, share + _BEYOND * error], 0, 1)
    sizes = np.unique(runs[along].values)
    colours = np.array(palette.ramp(len(sizes)))[np.searchsorted(sizes, runs[along].sel(run=[*off]).values)]
    axes.vlines(d, *ends, color=colours, linewidth=1.2, zorder=5)
    palette.published(axes, d, share, _LABEL, prefix="")


_CLAIMS = (_along_d, _falls_along("n"), _falls_along("T"), _independent)
EXPERIMENT = Experiment(measure, claims=_CLAIMS, estimate=estimate, draw=draw)
