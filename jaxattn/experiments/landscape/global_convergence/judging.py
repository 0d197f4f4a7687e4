"""Verdicts on the theorems on global convergence, from the shares of seeds that select the optimal tokens."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import xarray

from jaxattn.experiments.landscape.global_convergence.measure import STARTS
from jaxattn.experiments.landscape.global_convergence.shares import SETTLED
from jaxattn.study.claims import (
    LEAST_DRAWN,
    LEAST_SEEDS,
    Criterion,
    Datasets,
    Judgement,
    Number,
    above,
    below,
    counts_of,
    number,
    too_few,
    too_short,
)

# A difference of shares counts only if it exceeds rounding.
_MORE = 1e-9
# Fixed beforehand: thresholds for the final 1 - cos, for a share that should be 1, and for the accuracy of a
# prediction.
_CLOSE, _ALL, _TOLD = 0.02, 0.95, 0.7


def judge_first_gradient(summaries: Datasets) -> Judgement:
    """Seeds whose first step separates their optimal tokens must select them; as corrected, after a long step."""
    if missing := _missing(summaries, "zero", "long"):
        return Judgement.withheld(missing)
    first = {start: summaries[start] for start in ("zero", "long")}
    numbers, expected = {}, {}
    for run, one in _runs(first):
        for name, label in (("separated", "first step separates"), ("unseparated", "does not")):
            if int(one[f"{name}_seeds"]):
                numbers[f"share, {label}, {run}"] = number(one, name)
        if int(one["separated_seeds"]):
            expected[f"share, first step separates, {run}"] = 1.0
    seeds, wrong = (
        {start: int(one[name].sum()) for start, one in first.items()} for name in ("separated_seeds", "separated_wrong")
    )
    short, long = (
        below(
            f"seeds with a separating first step that select other tokens, {STARTS[start]},",
            Number.exact(wrong[start]),
            0,
        )
        for start in ("zero", "long")
    )
    others = [one for _, one in _runs(first)]
    unseparated = sum(int(one["unseparated_seeds"]) for one in others)
    right = unseparated - sum(int(one["wrong"]) - int(one["separated_wrong"]) for one in others)
    least = min(seeds.values())
    return _judgement(
        first,
        numbers,
        expected,
        stated=(short, long),
        corrected=(long,),
        correction=f"this needs a long first step. With a first step of 0.1, like all later ones, {wrong['zero']} of "
        f"{seeds['zero']} such seeds end at other tokens.",
        undecided="" if least >= LEAST_DRAWN else f"{least} seeds with a separating first step are too few.",
        remark="The theorem requires a sufficiently long first step (here 100), and that descent stays in a cone "
        f"around it. {sum(seeds.values())} of {sum(seeds.values()) + unseparated} seeds have a separating "
        f"first gradient; {right} of the others select their optimal tokens as well.",
    )


def judge_alignment(summaries: Datasets) -> Judgement:
    """In every run, the half of the seeds with the better first step must be right more often than the other half."""
    if missing := _missing(summaries, "zero", "long"):
        return Judgement.withheld(missing)
    first = {start: summaries[start] for start in ("zero", "long")}
    gains = {
        f"share of the better half minus that of the other, {run}": Number(
            *(float(one[f"gain_{part}"]) for part in ("mean", "low", "high"))
        )
        for run, one in _runs(first)
    }
    return _judgement(
        first,
        gains,
        {},
        stated=tuple(above(f"{label},", gain, _MORE) for label, gain in gains.items()),
        remark="Seeds are split into halves by the correlation of their first step with W_mm.",
    )


def judge_equal_scores(summaries: Datasets) -> Judgement:
    """All starts must select the optimal tokens; an exception counts only if its wrong inputs no longer affect W."""
    if missing := _missing(summaries, "random"):
        return Judgement.withheld(missing)
    summary, far = summaries["random"], _far(summaries)
    equal = summary.isel(run=(summary["spread"] == 0).values)
    if not equal.sizes["run"] or not far:
        return Judgement.withheld(
            "There must be runs with equal scores of all non-optimal tokens, both from random weights and from "
            "far along wrong selections."
        )
    shares = {f"share, {run}": number(one, "optimal") for run, one in _runs({"": equal})}
    shares |= {f"share, {run}": number(one, "optimal") for run, one in far.items()}
    left, moving = (sum(int(one[name]) for one in far.values()) for name in ("left", "moving"))
    wrong, settled = int(equal["wrong"].sum()), int(equal["settled"].sum())
    numbers = shares | {
        f"seeds that end at other tokens, {run}": Number.exact(int(one["wrong"])) for run, one in _runs({"": equal})
    }
    numbers |= {f"starts that leave inputs unserved, {run}": Number.exact(int(one["left"])) for run, one in far.items()}
    numbers["from random weights, with less than 1e-6 of the gradient on the wrong inputs"] = Number.exact(settled)
    # Between the number that stay there and the number that are not yet at the optimal tokens at the end.
    elsewhere = Number(wrong + left, settled + left, wrong + left + moving)
    explained = (
        criterion
        for run, one in far.items()
        for criterion in (
            below(f"1 - cos with the solution of the served inputs, {run},", number(one, "off_served"), _CLOSE),
            above(
                f"share that selects the optimal tokens, or leaves inputs unserved by this rule, {run},",
                number(one, "explained"),
                _ALL,
            ),
        )
    )
    return _judgement(
        {"random": summary, **far},
        numbers,
        dict.fromkeys(shares, 1.0),
        stated=(below("seeds that end at other tokens (interval: those that stay there, to all),", elsewhere, 0),),
        corrected=tuple(explained),
        correction="W converges in direction to the max-margin solution of the inputs that descent serves (selects "
        "the optimal token of). Along this solution the optimal token of every other input is behind by more than the "
        f"margin 1. This happens for {left} of {sum(int(one['starts']) for one in far.values())} starts "
        "far along a wrong selection.",
        remark=_elsewhere(equal, wrong, settled),
    )


def judge_basins(summaries: Datasets) -> Judgement:
    """From the farthest starts, the prediction must be right for both outcomes, if there are enough of each."""
    far = _far(summaries)
    if not far:
        return Judgement.withheld("There is no run from far along a wrong selection.")
    farthest = max(float(one.attrs["R"]) for one in far.values())
    least = {run: _rarer(one) for run, one in far.items() if one.attrs["R"] == farthest}
    judged = {run: far[run] for run, rarer in least.items() if rarer >= LEAST_SEEDS}
    if not judged:
        few = "; ".join(f"{run}: {rarer}" for run, rarer in least.items())
        return Judgement.withheld(f"One of the two outcomes has too few starts to judge a prediction ({few}).")
    numbers: dict[str, Number] = {}
    for run, one in far.items():
        numbers[f"share that selects the optimal tokens, {run}"] = number(one, "optimal")
        numbers[f"share that stays at alpha, {run}"] = number(one, "stays")
        numbers[f"balanced accuracy of the prediction, {run}"] = number(one, "balanced")
        numbers[f"balanced accuracy by the support vectors of alpha, {run}"] = number(one, "balanced_support")
    left = [f"{run} ({rarer})" for run, rarer in least.items() if run not in judged]
    return _judgement(
        far,
        numbers,
        {f"balanced accuracy of the prediction, {run}": 1.0 for run in judged},
        stated=tuple(
            above(f"balanced accuracy of the prediction, {run},", number(one, "balanced"), _TOLD)
            for run, one in judged.items()
        ),
        remark="Balanced accuracy is the mean of two shares of correct predictions: among the starts that end at "
        "other tokens, and among the rest; guessing gives 0.5. "
        f"{sum(int(one['staying']) for one in far.values())} of "
        f"{sum(int(one['starts']) for one in far.values())} starts stay at alpha: with equal scores no other "
        "selection is locally optimal. The prediction is for the limit of large R."
        + (f" Not judged, with fewer than {LEAST_SEEDS} starts for one outcome: {', '.join(left)}." if left else ""),
    )


def _rarer(one: xarray.Dataset) -> int:
    """Return the number of starts with the rarer outcome, optimal or other tokens."""
    starts = int(one["starts"])
    optimal = round(float(one["optimal"]) * starts)
    return min(optimal, starts - optimal)


def _far(summaries: Datasets) -> dict[str, xarray.Dataset]:
    return {run: one for run, one in summaries.items() if one.attrs.get("start") == "far"}


def _elsewhere(equal: xarray.Dataset, wrong: int, settled: int) -> str:
    """Say how many starts end at other tokens, and why."""
    if not wrong:
        return "All seeds select their optimal tokens."
    if not settled:
        return f"{wrong} seeds have not selected their optimal tokens, but may still do so."
    alone = equal.isel(run=(equal["n"] == 1).values)["wrong"]
    remark = (
        f"{wrong} starts end at other tokens. For {settled} of them the wrong inputs contribute less than {SETTLED:g} "
        "of the gradient, so they stay there: other inputs drive W in a direction in which the optimal token of the "
        "wrong input loses more logit than they gain margin, and its gradient vanishes relative to theirs. The lemma "
        "-<grad L, W_mm> > 0 (see no-stationary-point) excludes a stationary point, but not this."
    )
    return remark + (" With one input every start converges globally." if alone.size and not int(alone.sum()) else "")


def judge_score_gap(summaries: Datasets) -> Judgement:
    """The share must fall from each spread to the next, and the first and last intervals must not overlap."""
    if missing := _missing(summaries, "random"):
        return Judgement.withheld(missing)
    summary = summaries["random"]
    usual = int(summary["n"].sel(run=summary["run"].values[summary["spread"].values.argmax()]))
    ours = summary.isel(run=(summary["n"] == usual).values).sortby("spread")
    if ours.sizes["run"] < 2:
        return Judgement.withheld("Only one spread of the scores was run; at least two are needed.")
    shares = {f"share, {run}": number(one, "optimal") for run, one in _runs({"": ours})}
    spreads = [float(spread) for spread in ours["spread"]]
    falls = [
        above(f"share at spread {a:g} minus share at {b:g}", before.minus(after), _MORE)
        for (a, before), (b, after) in itertools.pairwise(zip(spreads, shares.values(), strict=True))
    ]
    first, *_, last = shares.values()
    apart = Number(first.mean - last.mean, first.low - last.high, first.high - last.low)
    return _judgement(
        {"random": summary},
        shares,
        {},
        stated=(*falls, above("gap between the intervals of the first and the last share", apart, _MORE)),
        remark=f"The share falls from {first.mean:.3g} to {last.mean:.3g}."
        if last.mean < first.mean
        else f"The share does not fall: {first.mean:.3g} at the first spread, {last.mean:.3g} at the last.",
    )


def _missing(summaries: Datasets, *starts: str) -> str:
    """Return a message naming the starts that were not run, or nothing if all were."""
    missing = [STARTS[start] for start in starts if start not in summaries]
    return f"There is no run {' and none '.join(missing)}." if missing else ""


def _kept(summary: xarray.Dataset) -> xarray.DataArray:
    return summary["starts" if "starts" in summary else "optimal_seeds"]


def _runs(summaries: Datasets) -> list[tuple[str, xarray.Dataset]]:
    """Return each run of some summaries, with its name."""
    return [(str(run), one.sel(run=run)) for one in summaries.values() for run in one["run"].values]


def _judgement(
    summaries: Datasets,
    numbers: Mapping[str, Number],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    undecided: str = "",
    remark: str = "",
) -> Judgement:
    """Return the judgement; it decides nothing if a run was too short or kept too few seeds."""
    steps = min(int(one.attrs["steps"]) for one in summaries.values())
    kept = min(int(_kept(one).min()) for one in summaries.values())
    return Judgement(
        numbers=numbers,
        expected=expected,
        counts=counts_of(_far(summaries))
        | {
            run: {name: int(one[name]) for name in summary.attrs if name in one}
            for start, summary in summaries.items()
            if start in STARTS
            for run, one in _runs({"": summary})
        },
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=too_short(steps) or too_few(kept) or undecided,
        remark=remark,
    )
