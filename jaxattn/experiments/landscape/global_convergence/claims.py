"""What the measured shares say of the theorems on global convergence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import xarray

from jaxattn.study.claims import LEAST_DRAWN, LEAST_STEPS, Claim, Verdict, concluded, too_few

_SOURCE = "arXiv 2308.16898, theorems on global convergence (as recalled)"

Numbers = dict[str, tuple[float, float, float]]
Counts = Mapping[str, Mapping[str, int]]


def judged(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> list[Claim]:
    """Judge the claims on the summaries of `global_convergence.summarize`, with the counts of each run."""
    first = {start: summaries[start] for start in ("zero", "long") if start in summaries}
    random = {start: summaries[start] for start in ("random",) if start in summaries}
    claims = [_first_gradient(first, counts), _alignment(first, counts)] if first else []
    return claims + ([_equal(random, counts), _spread(random, counts)] if random else [])


def _first_gradient(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> Claim:
    measured, expected, few, always = {}, {}, 0, {}
    for start, summary in summaries.items():
        for run in summary["run"].values:
            one = summary.sel(run=run)
            for name, label in (("separated", "first step separates"), ("unseparated", "does not")):
                if int(one[f"{name}_seeds"]):
                    measured[f"share, {label}, {run}"] = _read(one, name)
            if int(one["separated_seeds"]):
                expected[f"share, first step separates, {run}"] = 1.0
            few += int(one["separated_seeds"])
            always[start] = always.get(start, True) and (
                float(one["separated"]) == 1 or not int(one["separated_seeds"])
            )
    undecided = _undecided(summaries) or ("" if few >= LEAST_DRAWN else f"{few} separating first steps are too few.")
    good = Verdict.HOLDS if all(always.values()) else Verdict.CORRECTED
    return _claim(
        "first-gradient",
        "If the first gradient from W = 0 separates the optimal tokens from all others, descent that begins with a "
        "long step along it selects them.",
        expected,
        measured,
        _of(summaries, counts),
        (good if always.get("long", False) else Verdict.FAILS, undecided),
        "The theorem asks for a first step long enough, here 100, and that descent stays in a cone around it. "
        + (
            ""
            if good is Verdict.HOLDS
            else "Correction: with a first step of 0.1 like all others not every such seed does. "
        )
        + "Few random problems have such a gradient, and most others converge globally as well.",
    )


def _alignment(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> Claim:
    measured = {
        f"share of the better half minus that of the other, {run}": _read(summary.sel(run=run), "gain")
        for summary in summaries.values()
        for run in summary["run"].values
    }
    return _claim(
        "alignment",
        "The better the first gradient is aligned with W_mm, the more often descent selects the optimal tokens.",
        {},
        measured,
        _of(summaries, counts),
        (Verdict.HOLDS if all(low > 0 for _, low, _ in measured.values()) else Verdict.FAILS, _undecided(summaries)),
        "Seeds in halves by the correlation of their first step with W_mm; holds if every interval is above 0.",
    )


def _equal(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> Claim:
    (summary,) = summaries.values()
    equal = summary.isel(run=(summary["spread"] == 0).values)
    measured = {f"share, {run}": _read(equal.sel(run=run), "optimal") for run in equal["run"].values}
    expected = dict.fromkeys(measured, 1.0)
    wrong, settled = int(equal["wrong"].sum()), int(equal["settled"].sum())
    measured |= {
        f"seeds that end elsewhere, {run}": _exactly(equal["wrong"].sel(run=run)) for run in equal["run"].values
    }
    measured["of these, with less than 1e-6 of the gradient left to the wrong inputs"] = _exactly(settled)
    alone = equal.isel(run=(equal["n"] == 1).values)["wrong"]
    note = "All seeds select their optimal tokens."
    if wrong:
        note = (
            f"{wrong} starts end elsewhere, and {settled} of them stay: other inputs drive W in a direction in which "
            "the wrong input's optimal token loses more logit than they gain margin, so that its part of the gradient "
            "vanishes next to theirs. -<grad L, W_mm> > 0 everywhere (no-stationary-point) forbids a stationary point, "
            "but not this."
        )
        note += " With one input every start converges globally." if alone.size and not int(alone.sum()) else ""
    undecided = _undecided(summaries)
    if wrong and not settled:
        undecided = undecided or f"{wrong} seeds do not select their optimal tokens yet, but may still."
    return _claim(
        "equal-scores",
        "If all non-optimal tokens of an input have equal scores, descent selects the optimal tokens from any start.",
        expected,
        measured,
        _of(summaries, counts),
        (Verdict.FAILS if wrong else Verdict.HOLDS, undecided),
        note,
    )


def _spread(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> Claim:
    (summary,) = summaries.values()
    usual = int(summary["n"].sel(run=summary["run"].values[summary["spread"].values.argmax()]))
    ours = summary.isel(run=(summary["n"] == usual).values).sortby("spread")
    measured = {f"share, {run}": _read(ours.sel(run=run), "optimal") for run in ours["run"].values}
    shares = list(measured.values())
    falls = all(later[0] < earlier[0] for earlier, later in itertools.pairwise(shares)) and shares[-1][2] < shares[0][1]
    return _claim(
        "score-gap",
        "The further apart the scores of non-optimal tokens are, the less often descent selects the optimal ones.",
        {},
        measured,
        _of(summaries, counts),
        (Verdict.HOLDS if falls else Verdict.FAILS, _undecided(summaries)),
        "Holds if the share falls from each spread to the next, and the intervals of the first and last are apart.",
    )


def _of(summaries: Mapping[str, xarray.Dataset], counts: Counts) -> Counts:
    """Return the counts of the runs in some summaries."""
    return {str(run): counts[str(run)] for summary in summaries.values() for run in summary["run"].values}


def _undecided(summaries: Mapping[str, xarray.Dataset]) -> str:
    steps = min(int(one.attrs["steps"]) for one in summaries.values())
    if steps < LEAST_STEPS:
        return f"Runs of {steps} steps are too short to decide; the published size is 2000."
    return too_few(min(int(one["optimal_seeds"].min()) for one in summaries.values()))


def _exactly(number: Any) -> tuple[float, float, float]:
    """Return a number that has no interval."""
    return float(number), float(number), float(number)


def _read(one: xarray.Dataset, name: str) -> tuple[float, float, float]:
    mean = name if name in one else f"{name}_mean"
    return float(one[mean]), float(one[f"{name}_low"]), float(one[f"{name}_high"])


def _claim(
    name: str,
    statement: str,
    expected: Mapping[str, float],
    measured: Numbers,
    counts: Counts,
    decided: tuple[Verdict, str],
    note: str,
) -> Claim:
    verdict, undecided = decided
    return concluded(
        f"global-convergence:{name}",
        _SOURCE,
        statement,
        expected,
        measured,
        counts,
        verdict,
        undecided,
        note,
    )
