"""How often does descent select the optimal tokens, by d, n and T, and compared with an independent run?"""

from __future__ import annotations

import math
from itertools import cycle
from typing import NamedTuple

import numpy as np
import xarray
from jaxtyping import Array, Bool, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom

from jaxattn import svm, tokens
from jaxattn.attention import Weights
from jaxattn.experiments.landscape.outcomes import WEIGHTS, by_weights, read
from jaxattn.experiments.landscape.rising import Curve, points, trend
from jaxattn.parallel import batch
from jaxattn.problem import Problem
from jaxattn.study import claims
from jaxattn.study.claims import Claim, Datasets, Experiment, Judgement, Judgements, Number, below, between, claim
from jaxattn.study.estimates import estimated, exact, share
from jaxattn.study.settings.parameters import finite_seeds
from jaxattn.study.style import page, palette


def measure(record: xarray.Dataset, solver: svm.Solver | None = None) -> xarray.Dataset:
    """Read from the final weights of a `Training` whether the softmax is saturated, and on the optimal tokens.

    Nothing is solved. Of the seeds that stayed finite those that saturated are kept; the others are ambiguous.
    """
    del solver
    final, problems = read(record)
    finite = finite_seeds(final)
    saturated, globally = batch.over_seeds(_read_off, final, problems, finite)
    counts = {"attempted": finite.size, "kept": int((finite & saturated).sum())}
    counts |= {"diverged": int((~finite).sum()), "ambiguous": int((finite & ~saturated).sum())}
    return xarray.Dataset(
        {"saturated": (("seed",), saturated[finite]), "globally": (("seed",), globally[finite])},
        {"seed": record["seed"].values[finite]},
        counts,
    )


def _read_off(weights: Weights, problem: Problem, finite: Bool[Array, ""]) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
    saturated = finite & (tokens.saturation(weights, problem) >= tokens.SATURATED)
    return saturated, tokens.is_globally_optimal(tokens.scores(problem), tokens.selected(weights, problem))


# The independent run: this number of seeds, 1500 steps; its shares by weights, n and T, each over these d.
_SEEDS = 100
_DIMENSIONS = (4, 10, 20, 40, 80)
_SHARES = {
    ("W", 5, 5): (0.58, 0.90, 0.97, 0.99, 1.0),
    ("W", 10, 5): (0.10, 0.62, 0.87, 0.99, 1.0),
    ("W", 5, 10): (0.39, 0.70, 0.82, 0.87, 0.93),
    ("KQ", 5, 5): (0.57, 0.88, 0.97, 0.98, 1.0),
    ("KQ", 10, 5): (0.15, 0.69, 0.86, 0.94, 1.0),
    ("KQ", 5, 10): (0.62, 0.77, 0.82, 0.89, 0.97),
}


class _Compared(NamedTuple):
    """The difference from the share of the independent run; both errors have a hit and a miss added to each of them."""

    weights: str
    share: float
    difference: float
    # The standard error of the difference, and the difference in standard errors.
    error: float
    errors: float


def _compared(summaries: Datasets) -> dict[str, _Compared]:
    """Return the differences from the independent run, for runs of sizes that it has too."""
    off = {}
    for weights, summary in summaries.items():
        for run in summary["run"].values:
            at = summary.sel(run=run)
            n, T, d = (int(at[size]) for size in "nTd")
            if (weights, n, T) in _SHARES and d in _DIMENSIONS:
                share = _SHARES[weights, n, T][_DIMENSIONS.index(d)]
                ours = float(at["global"])
                adjusted, error = difference(ours, int(at["seeds"]), share, _SEEDS)
                off[str(run)] = _Compared(weights, share, ours - share, error, adjusted / error)
    return off


def difference(share: float, seeds: int, other: float, others: int) -> tuple[float, float]:
    """Return the difference of two shares and its standard error, with a hit and a miss added to each (Agresti, Caffo).

    Without these a share of 0 or 1 would have zero error.
    """
    sizes = np.array([seeds, others])
    shares = (np.array([share, other]) * sizes + 1) / (sizes + 2)
    return float(shares[0] - shares[1]), float(np.sqrt(np.sum(shares * (1 - shares) / (sizes + 2))))


def by_chance(comparisons: int) -> int:
    """Return the largest number of normal errors beyond two standard errors, in 95 % of cases."""
    return int(binom.ppf(0.95, comparisons, 0.0455))


# The published figure is not available to us: we know what it shows, and chose the sizes.
_SOURCE = claims.Source("arXiv 2308.16898", "figure of the probability of global convergence", claims.Setting.PROXY)
_PROTOCOL = "an independent run of the protocol of arXiv 2308.16898"
_INDEPENDENT = claims.Source(_PROTOCOL, "100 seeds, 1500 steps", claims.Setting.EXACT)
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
    off = _compared(summaries)
    beyond = [f"{run} by {each.errors:+.1f}" for run, each in off.items() if abs(each.errors) > _BEYOND]
    listed = f" ({'; '.join(beyond)})" if beyond else ""
    allowed = by_chance(len(off))
    far = Number.exact(max(abs(each.errors) for each in off.values()))
    probabilities = _probabilities(summaries)
    mean = {
        weights: _mean_difference([each for each in off.values() if each.weights == weights]) for weights in WEIGHTS
    }
    widest = max((number.high - number.low) / 2 for number in mean.values())
    differ = f"probabilities that differ by more than {_BEYOND} standard errors"
    return Judgement(
        (
            below(differ, Number.exact(len(beyond)), allowed),
            below("largest difference of a probability, in standard errors,", far, _FAR),
            *(
                between(f"mean difference of the probabilities from the independent run, {weights},", number, *_NO_MORE)
                for weights, number in mean.items()
            ),
        ),
        remark=f"{len(beyond)} of {len(off)} probabilities differ by more than {_BEYOND} standard errors of the "
        f"difference{listed}. If nothing differed, chance would give at most {allowed} in 95 of 100 cases. The "
        f"independent run has {_SEEDS} seeds, so that a single probability is told apart from its own only if it is "
        f"off by more than {_BEYOND * max(each.error for each in off.values()):.2f} in the middle of the range, and "
        f"the mean of those of W or of (K, Q) only if it is off by more than {widest:.3f}. Its shares are copied from "
        "that run and are in no text of the paper.",
        numbers={run: probabilities[run] for run in off},
        expected={run: each.share for run, each in off.items()},
        counts=claims.counts_of({run: runs[run] for run in off}),
    )


def _mean_difference(off: list[_Compared]) -> Number:
    """Return the mean difference, separate for W and (K, Q), which are trained on the same problems."""
    mean = math.fsum(each.difference for each in off) / len(off)
    half = 2 * math.sqrt(math.fsum(each.error**2 for each in off)) / len(off)
    return Number(mean, mean - half, mean + half)


_TRAINED = {"W": "$W$", "KQ": "$(K, Q)$"}
_LABEL = f"independent run of the protocol, {_SEEDS} seeds"


def draw(summaries: Datasets, judgements: Judgements) -> Figure:
    """Draw a row of two panels for W and one for (K, Q), over the number of inputs n and over that of tokens T."""
    summaries = by_weights(summaries)
    seeds = [int(number) for summary in summaries.values() for number in summary["seeds"].values]
    off = _compared(summaries)
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
    off = _compared({weights: runs})
    d = 1.035 * runs["d"].sel(run=[*off]).values
    share, error = np.array([(each.share, each.error) for each in off.values()]).T
    ends = np.clip([share - _BEYOND * error, share + _BEYOND * error], 0, 1)
    sizes = np.unique(runs[along].values)
    colours = np.array(palette.ramp(len(sizes)))[np.searchsorted(sizes, runs[along].sel(run=[*off]).values)]
    axes.vlines(d, *ends, color=colours, linewidth=1.2, zorder=5)
    palette.published(axes, d, share, _LABEL, prefix="")


_CLAIMS = (_along_d, _falls_along("n"), _falls_along("T"), _independent)
EXPERIMENT = Experiment(measure, claims=_CLAIMS, estimate=estimate, draw=draw)
