"""The theorems on global convergence, judged by the shares of seeds that select the optimal tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray
from jaxtyping import Bool, Float, PRNGKeyArray

from jaxattn.experiments.landscape.global_convergence.measure import MARGIN
from jaxattn.experiments.landscape.outcomes import SETTLED
from jaxattn.experiments.landscape.rising import MORE
from jaxattn.statistics import LEAST_SEEDS, bootstrap, derive_key, proportion, variables
from jaxattn.study.claims import Datasets, Judgement, Needs, Setting, Source, claim, family, total
from jaxattn.study.claims.counts import LEAST_DRAWN, LEAST_STEPS
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import added, estimated, exact, mean, number, share

# The starts of descent, in words, and the settings of their runs.
STARTS = {
    "from W = 0": {"weights": "free_zero", "optimizer": "scale_free_gd"},
    "from a long first step": {"weights": "free_zero", "optimizer": "long_first_gd"},
    "from random weights": {"weights": "free"},
}
FAR = {"weights": "far"}
# Bins of the correlation of the first step with W_mm (the outer bins are open), and of its smallest margin, which is 1
# for W_mm itself.
CORRELATIONS = (0.2, 0.4, 0.5, 0.6, 0.8)
MARGINS = (-np.inf, -1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 1.0)
# Fixed beforehand: a start has converged to a solution if 1 - cos with it is at most this.
_NEAR = 0.05


def summarize(runs: Datasets, key: PRNGKeyArray) -> Datasets:
    """Estimate the shares of each run; and for each of `STARTS`, by name, the shares by margin over all its runs.

    Raises:
        ValueError: an impossible share of the gradient.
    """
    summaries: dict[str, xarray.Dataset] = {}
    for k, (name, run) in enumerate(family(runs, FAR).items()):
        summaries[name] = _from_far(run, derive_key(key, k))
    for (start, settings), start_key in zip(STARTS.items(), jax.random.split(key, len(STARTS)), strict=True):
        of_start = family(runs, settings)
        for (name, run), run_key in zip(of_start.items(), jax.random.split(start_key, len(of_start)), strict=True):
            summaries[name] = _from_start(run, run_key)
        hits, margin = (np.concatenate([run[name] for run in of_start.values()]) for name in ("optimal", "margin"))
        by_margin = _binned("by_margin", "margin_bin", hits, margin, MARGINS)
        summaries[start] = xarray.Dataset(by_margin, attrs=total(of_start))
    return summaries


def _from_start(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return the shares of all seeds, of those with and without a separating first step, and by its correlation."""
    hits, correlation, margin, lost = (run[name].values for name in ("optimal", "correlation", "margin", "lost"))
    if not np.all((lost >= 0) & (lost <= 1)):
        raise ValueError(f"lost: expected shares of the gradient, 0..1, found {lost.min():.3g}..{lost.max():.3g}")
    upper = correlation > np.median(correlation)
    # How much more often the half of the seeds with the better first step is right. Centred at the mean of all, so that
    # resampling the sizes of the halves adds no spread.
    weights = np.where(upper, 1 / max(upper.mean(), 1e-9), -1 / max(1 - upper.mean(), 1e-9))
    arrays: dict[str, Any] = {
        **variables({"gain": ((), bootstrap(weights * (hits - hits.mean()), key))}),
        **_share("optimal", hits),
        **_share("separated", hits[margin > 0]),
        **_share("unseparated", hits[margin <= 0]),
        **_binned("by_correlation", "correlation_bin", hits, correlation, CORRELATIONS),
        "wrong": ((), int((~hits).sum())),
        "settled": ((), int((lost[~hits] < SETTLED).sum())),
        "separated_wrong": ((), int((~hits[margin > 0]).sum())),
    }
    middles = (np.asarray(CORRELATIONS)[1:] + CORRELATIONS[:-1]) / 2
    return xarray.Dataset(arrays, {"correlation_bin": middles}, run.attrs)


def _binned(
    name: str, axis: str, hits: Bool[np.ndarray, " seeds"], values: Float[np.ndarray, " seeds"], edges: Sequence[float]
) -> dict[str, Any]:
    """Return the shares of hits among the seeds whose value is in each bin; the outer bins are open."""
    place = np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)
    parts = [_share(name, hits[place == k]) for k in range(len(edges) - 1)]
    return {part: ((axis,), np.array([of_bin[part][1] for of_bin in parts])) for part in parts[0]}


def _share(name: str, hits: Bool[np.ndarray, " seeds"]) -> dict[str, Any]:
    """Return a share with its interval, NaN without seeds, and the number of seeds."""
    mean, low, high = proportion(hits)[:3] if len(hits) else (np.nan,) * 3
    parts = {"": float(mean), "_low": float(low), "_high": float(high), "_seeds": len(hits)}
    return {f"{name}{suffix}": ((), part) for suffix, part in parts.items()}


def _from_far(run: xarray.Dataset, key: PRNGKeyArray) -> xarray.Dataset:
    """Return where the starts of one run have ended, and the balanced accuracies of both predictions.

    `left` counts the starts near the solution of the served inputs, with another input behind by more than the margin;
    `explained` is the share of these and of those that select the optimal tokens.
    """
    optimal = run["optimal"]
    left = (run["unserved"] > 0) & (run["behind"] > MARGIN) & (run["off_served"] <= _NEAR)
    return estimated(
        run,
        key,
        optimal=share(optimal),
        stays=share(run["stays"]),
        elsewhere=share(run["elsewhere"]),
        explained=share(optimal | left),
        off_served=mean(run["off_served"]),
        balanced=mean(_balanced(optimal, run["elsewhere"])),
        balanced_support=mean(_balanced(optimal, run["apart"])),
        starts=exact(run.sizes["seed"]),
        staying=exact(run["stays"].sum()),
        left=exact(left.sum()),
        moving=exact((~optimal & ~left).sum()),
    )


def _balanced(optimal: xarray.DataArray, elsewhere: xarray.DataArray) -> xarray.DataArray:
    """Return one number per seed whose mean is the balanced accuracy of a prediction: 1/2 if one outcome is missing.

    That is the mean of the shares of correct predictions among the starts that end elsewhere and among the rest. The
    numbers are centred at it, so that resampling the sizes of the two outcomes adds no spread.
    """
    right, hit = optimal.values, (optimal != elsewhere).values
    parts = [float(hit[outcome].mean()) if outcome.any() else 0.5 for outcome in (right, ~right)]
    own = np.where(right, parts[0], parts[1])
    size = np.where(right, max(right.mean(), 1e-9), max(1 - right.mean(), 1e-9))
    return optimal.copy(data=np.mean(parts) + (hit - own) / (2 * size))


_PAPER, _LOCATOR = "arXiv 2308.16898", "sections 4 and 5.2, theorems on global convergence"
# Normalized descent stands in for the plain descent of the theorems; how the shares change is our question.
_PROXY, _OURS = (Source(_PAPER, _LOCATOR, setting) for setting in (Setting.PROXY, Setting.OURS))
_NEEDS = Needs(LEAST_DRAWN, LEAST_STEPS)
_ZERO, _LONG, _RANDOM = STARTS
# Fixed beforehand: thresholds for the final 1 - cos, for a share that should be 1, and for the accuracy of a
# prediction.
_CLOSE, _ALL, _TOLD = 0.02, 0.95, 0.7


@claim(
    "global-convergence:first-gradient",
    _PROXY,
    "If the first gradient from W = 0 separates the optimal tokens from all others, descent with a long first "
    "step along it selects them.",
    needs=_NEEDS,
)
def _first_gradient(runs: Datasets) -> Judgement:
    zero, long = family(runs, STARTS[_ZERO]), family(runs, STARTS[_LONG])
    both = zero | long
    seeds, wrong = (
        {start: added(of_start, name) for start, of_start in ((_ZERO, zero), (_LONG, long))}
        for name in ("separated_seeds", "separated_wrong")
    )
    short_criterion, long_criterion = (
        below(f"seeds with a separating first step that select other tokens, {start},", Number.exact(wrong[start]), 0)
        for start in wrong
    )
    separates, does_not = (
        {f"share, {label}, {run}": number(summary, name) for run, summary in both.items()}
        for name, label in (("separated", "first step separates"), ("unseparated", "does not"))
    )
    unseparated, least = added(both, "unseparated_seeds"), min(seeds.values())
    separated, right = sum(seeds.values()), unseparated - added(both, "wrong") + sum(wrong.values())
    return Judgement(
        (short_criterion, long_criterion),
        (long_criterion,),
        correction=f"this needs a long first step. With a first step of 0.1, like all later ones, {wrong[_ZERO]} of "
        f"{seeds[_ZERO]} such seeds end at other tokens.",
        remark="The theorem requires a sufficiently long first step (here 100), and that descent stays in a cone "
        f"around it. {separated} of {separated + unseparated} seeds have a separating "
        f"first gradient; {right} of the others select their optimal tokens as well.",
        numbers=separates | does_not,
        expected=dict.fromkeys(separates, 1.0),
        undecided="" if least >= LEAST_DRAWN else f"{least} seeds with a separating first step are too few.",
    )


@claim(
    "global-convergence:alignment",
    _OURS,
    "The better the first gradient is aligned with W_mm, the more often descent selects the optimal tokens.",
    needs=_NEEDS,
)
def _alignment(runs: Datasets) -> Judgement:
    gains = {
        f"share of the better half minus that of the other, {run}": number(summary, "gain")
        for run, summary in (family(runs, STARTS[_ZERO]) | family(runs, STARTS[_LONG])).items()
    }
    return Judgement(
        [above(f"{label},", gain, MORE) for label, gain in gains.items()],
        remark="Seeds are split into halves by the correlation of their first step with W_mm.",
        numbers=gains,
    )


@claim(
    "global-convergence:equal-scores",
    _PROXY,
    "If all non-optimal tokens of an input have equal scores, descent selects the optimal tokens from any start.",
    needs=_NEEDS,
)
def _equal_scores(runs: Datasets) -> Judgement:
    random, far = family(runs, STARTS[_RANDOM]), family(runs, FAR)
    equal = family(random, {"data.spread": 0.0})
    shares = {f"share, {run}": number(summary, "optimal") for run, summary in (equal | far).items()}
    wrong, settled = added(equal, "wrong"), added(equal, "settled")
    single = [int(summary["wrong"]) for summary in equal.values() if summary.attrs["data.n"] == 1]
    left, moving = added(far, "left"), added(far, "moving")
    # From the number that stay at other tokens to the number that have not arrived at the optimal ones.
    elsewhere = Number(wrong + left, settled + left, wrong + left + moving)
    return Judgement(
        [below("seeds that end at other tokens (interval: those that stay there, to all),", elsewhere, 0)],
        remark="The theorem is on plain descent with a fixed step; this is descent along the exact gradient direction. "
        f"{wrong} starts end at other tokens. For {settled} of them the wrong inputs contribute less than "
        f"{SETTLED:g} of the gradient, so they stay there: other inputs drive W in a direction in which the optimal "
        "token of the wrong input loses more logit than they gain margin, and its gradient vanishes relative to "
        "theirs. The lemma -<grad L, W_mm> > 0 (see no-stationary-point) excludes a stationary point, but not this. "
        f"Of {added(far, 'starts')} starts far along a wrong selection {left} end so; where, see "
        "global-convergence:served."
        + (" With one input every start converges globally." if single and not any(single) else ""),
        numbers=shares
        | {f"seeds that end at other tokens, {run}": number(summary, "wrong") for run, summary in equal.items()}
        | {f"starts that leave inputs unserved, {run}": number(summary, "left") for run, summary in far.items()}
        | {"from random weights, with less than 1e-6 of the gradient on the wrong inputs": Number.exact(settled)},
        expected=dict.fromkeys(shares, 1.0),
    )


@claim(
    "global-convergence:served",
    _OURS,
    "With equal scores of non-optimal tokens, descent from far along a wrong selection converges in direction to the "
    "max-margin solution of the inputs that it serves (selects the optimal token of). Along this solution the optimal "
    "token of every other input is behind by more than the margin 1.",
    needs=_NEEDS,
)
def _served(runs: Datasets) -> Judgement:
    far = family(runs, FAR)
    share = "share that selects the optimal tokens, or leaves inputs unserved by this rule"
    return Judgement(
        [
            criterion
            for run, summary in far.items()
            for criterion in (
                below(f"1 - cos with the solution of the served inputs, {run},", number(summary, "off_served"), _CLOSE),
                above(f"{share}, {run},", number(summary, "explained"), _ALL),
            )
        ],
        remark=f"{added(far, 'left')} of {added(far, 'starts')} starts leave inputs unserved.",
    )


@claim(
    "global-convergence:basins",
    _OURS,
    "From far along a wrong selection, the solutions of the inputs already served determine which inputs descent "
    "serves, and so whether it selects the optimal tokens. The next input served is the one whose optimal token "
    "is least behind along that solution, provided this is by at most the margin.",
    needs=_NEEDS,
)
def _basins(runs: Datasets) -> Judgement:
    far = family(runs, FAR)
    farthest = max(summary.attrs["weights.margin"] for summary in far.values())
    rarer = {run: _rarer(summary) for run, summary in far.items() if summary.attrs["weights.margin"] == farthest}
    judged = [run for run, starts in rarer.items() if starts >= LEAST_SEEDS]
    if not judged:
        few = "; ".join(f"{run}: {starts}" for run, starts in rarer.items())
        return Judgement.withheld(f"One of the two outcomes has too few starts to judge a prediction ({few}).")
    left = [f"{run} ({starts})" for run, starts in rarer.items() if run not in judged]
    accuracy = "balanced accuracy of the prediction"
    return Judgement(
        [above(f"{accuracy}, {run},", number(far[run], "balanced"), _TOLD) for run in judged],
        remark="Balanced accuracy is the mean of two shares of correct predictions: among the starts that end at "
        "other tokens, and among the rest; guessing gives 0.5. "
        f"{added(far, 'staying')} of {added(far, 'starts')} starts stay at alpha: with equal scores no other "
        "selection is locally optimal. The prediction is for the limit of large R."
        + (f" Not judged, with fewer than {LEAST_SEEDS} starts for one outcome: {', '.join(left)}." if left else ""),
        numbers={
            f"{label}, {run}": number(summary, name)
            for run, summary in far.items()
            for name, label in (
                ("optimal", "share that selects the optimal tokens"),
                ("stays", "share that stays at alpha"),
                ("balanced", accuracy),
                ("balanced_support", "balanced accuracy by the support vectors of alpha"),
            )
        },
        expected={f"{accuracy}, {run}": 1.0 for run in judged},
    )


def _rarer(summary: xarray.Dataset) -> int:
    """Return the number of starts with the rarer outcome, optimal or other tokens."""
    starts = int(summary["starts"])
    optimal = round(float(summary["optimal"]) * starts)
    return min(optimal, starts - optimal)


@claim(
    "global-convergence:score-gap",
    _OURS,
    "The farther apart the scores of non-optimal tokens are, the less often descent selects the optimal ones.",
    needs=_NEEDS,
)
def _score_gap(runs: Datasets) -> Judgement:
    random = family(runs, STARTS[_RANDOM])
    usual = max(random.values(), key=lambda summary: summary.attrs["data.spread"]).attrs["data.n"]
    swept = sorted(family(random, {"data.n": usual}).values(), key=lambda summary: summary.attrs["data.spread"])
    shares = {summary.attrs["data.spread"]: number(summary, "optimal") for summary in swept}
    first, last = (number(summary, "optimal") for summary in (swept[0], swept[-1]))
    falls = [
        above(f"share at spread {a:g} minus share at {b:g}", before.minus(after), MORE)
        for (a, before), (b, after) in itertools.pairwise(shares.items())
    ]
    return Judgement(
        [*falls, above("gap between the intervals of the first and the last share", first.apart_from(last), MORE)],
        remark=f"The share falls from {first.mean:.3g} to {last.mean:.3g}."
        if last.mean < first.mean
        else f"The share does not fall: {first.mean:.3g} at the first spread, {last.mean:.3g} at the last.",
        numbers={f"share, {summary.attrs['run']}": number(summary, "optimal") for summary in swept},
    )


CLAIMS = (_first_gradient, _alignment, _equal_scores, _served, _basins, _score_gap)
