"""The theorems on global convergence, judged by the shares of seeds that select the optimal tokens."""

from __future__ import annotations

import itertools

import xarray

from jaxattn.experiments.landscape.global_convergence.estimates import FAR, SETTLED, STARTS
from jaxattn.experiments.landscape.rising import MORE
from jaxattn.study.claims import (
    LEAST_DRAWN,
    LEAST_SEEDS,
    LEAST_STEPS,
    Datasets,
    Judgement,
    Needs,
    Setting,
    Source,
    claim,
    family,
)
from jaxattn.study.claims.criteria import Number, above, below
from jaxattn.study.estimates import number

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
    seeds, wrong = (
        {start: _count(of_start, name) for start, of_start in ((_ZERO, zero), (_LONG, long))}
        for name in ("separated_seeds", "separated_wrong")
    )
    short_criterion, long_criterion = (
        below(f"seeds with a separating first step that select other tokens, {start},", Number.exact(wrong[start]), 0)
        for start in wrong
    )
    separates, does_not = (
        {f"share, {label}, {run}": number(summary, name) for run, summary in (zero | long).items()}
        for name, label in (("separated", "first step separates"), ("unseparated", "does not"))
    )
    separated, unseparated = sum(seeds.values()), _count(zero | long, "unseparated_seeds")
    right = unseparated - _count(zero | long, "wrong") + sum(wrong.values())
    least = min(seeds.values())
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
    wrong, settled = _count(equal, "wrong"), _count(equal, "settled")
    single = [int(summary["wrong"]) for summary in equal.values() if summary.attrs["data.n"] == 1]
    left, moving = _count(far, "left"), _count(far, "moving")
    # From the number that stay at other tokens to the number that have not arrived at the optimal ones.
    elsewhere = Number(wrong + left, settled + left, wrong + left + moving)
    return Judgement(
        [below("seeds that end at other tokens (interval: those that stay there, to all),", elsewhere, 0)],
        remark="The theorem is on plain descent with a fixed step; this is descent along the exact gradient direction. "
        f"{wrong} starts end at other tokens. For {settled} of them the wrong inputs contribute less than "
        f"{SETTLED:g} of the gradient, so they stay there: other inputs drive W in a direction in which the optimal "
        "token of the wrong input loses more logit than they gain margin, and its gradient vanishes relative to "
        "theirs. The lemma -<grad L, W_mm> > 0 (see no-stationary-point) excludes a stationary point, but not this. "
        f"Of {_count(far, 'starts')} starts far along a wrong selection {left} end so; where, see "
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
        remark=f"{_count(far, 'left')} of {_count(far, 'starts')} starts leave inputs unserved.",
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
        f"{_count(far, 'staying')} of {_count(far, 'starts')} starts stay at alpha: with equal scores no other "
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


def _count(runs: Datasets, name: str) -> int:
    return sum(int(summary[name]) for summary in runs.values())


CLAIMS = (_first_gradient, _alignment, _equal_scores, _served, _basins, _score_gap)
