"""The verdicts on how few pairs carry the gradient of a text, and on which."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few

_SOURCE = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, sparsity of the gradient "
# Kinds of texts: some W separates all next words, or none does.
KINDS = ("feasible", "infeasible")
# Fewer texts of a kind are drawn, but not judged; shorter runs neither.
_TEXTS, _STEPS = 8, 5000
# What may be left beside the support vectors, and how far the share may be from that of the multipliers.
_BESIDE, _MISSED = 0.01, 0.02


def judged(summaries: Mapping[str, xarray.Dataset]) -> list[Claim]:
    """Return the claims on summaries of runs, by candidates and d."""
    decided = [
        (run, kind, one) for run, one in summaries.items() for kind in KINDS if int(one[f"{kind}_texts"]) >= _TEXTS
    ]
    return [_falls(decided, summaries), _support(decided, summaries)]


def _falls(decided: list[tuple[str, str, xarray.Dataset]], summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured, falling = {}, []
    for run, kind, one in decided:
        for place in (0, -1):
            at = one.isel(snapshot=place)
            label = f"share of pairs with 99 % of the gradient at step {int(at['snapshot'])}, {run}, {kind}"
            measured[label] = read(at, f"{kind}_share")
        measured[f"last share over first, {run}, {kind}"] = read(one, f"{kind}_ratio")
        measured[f"largest rise of the mean share, {run}, {kind}"] = (float(one[f"{kind}_rise"]),) * 3
        falling.append(float(one[f"{kind}_ratio_high"]) < 1)
    verdict = Verdict.FAILS
    if falling and any(falling):
        verdict = Verdict.HOLDS if all(falling) else Verdict.CORRECTED
    return _claim(
        "falls",
        "The share of tokens that carry 99 % of the gradient falls over training.",
        "(recalled)",
        {},
        measured,
        summaries,
        verdict,
        "Of all pairs of a prefix and a candidate word, the next one included. Holds if the interval of the last share "
        "over the first is below 1 in every run, of feasible texts and of others; with a correction if in some. Kinds "
        f"with less than {_TEXTS} texts are drawn and not judged. How far it falls is a matter of d: words in general "
        "position are nearly all support vectors where d is large.",
    )


def _support(decided: list[tuple[str, str, xarray.Dataset]], summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured, expected, holds = {}, {}, []
    for run, kind, one in decided:
        end = one.isel(snapshot=-1)
        of = "support vectors" if kind == "feasible" else "contested words"
        label = f"gradient beside {of} in the end, {run}"
        measured[label], expected[label] = read(end, f"{kind}_beside"), 0.0
        measured[f"share of pairs that are {of}, {run}"] = read(one, f"{kind}_core")
        holds.append(measured[label][2] < _BESIDE)
        if kind == "feasible":
            measured[f"share with 99 % of the gradient in the end, {run}"] = read(end, "feasible_share")
            expected[f"share with 99 % of the gradient in the end, {run}"] = float(one["feasible_limit"])
            measured[f"its distance to that of the multipliers, {run}"] = read(one, "feasible_missed")
            holds.append(float(one["feasible_missed_high"]) < _MISSED)
    return _claim(
        "support",
        "In the end support vectors carry the gradient, each in the measure of its multiplier.",
        "(the limit is ours)",
        expected,
        measured,
        summaries,
        Verdict.HOLDS if holds and all(holds) else Verdict.FAILS,
        f"Holds if less than {_BESIDE:.0%} of the gradient is left beside next words and support vectors of feasible "
        f"texts, and their share is within {_MISSED} of the one that the multipliers of the max-margin solution give. "
        "Of infeasible texts it is contested words that keep the gradient: those which follow one word in turn, whose "
        f"parts cancel in W but not in a prefix; less than {_BESIDE:.0%} may be left beside them.",
    )


def _claim(
    name: str,
    statement: str,
    where: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    summaries: Mapping[str, xarray.Dataset],
    verdict: Verdict,
    note: str,
) -> Claim:
    undecided = too_few(min(int(one.attrs["kept"]) for one in summaries.values()))
    if (steps := min(int(one["snapshot"][-1]) for one in summaries.values())) < _STEPS:
        undecided = f"A run of {steps} steps is too short to decide; the published size is 10000."
    return concluded(
        f"gradient-sparsity:{name}",
        _SOURCE + where,
        statement,
        expected,
        measured,
        counts_of(summaries),
        verdict,
        undecided,
        note,
    )
