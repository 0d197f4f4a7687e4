"""The verdicts on the two theorems of descent on texts, and on the soft margin where they promise nothing."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

from jaxattn.study.claims import Claim, Verdict, concluded, counts_of, read, too_few

_SOURCE = "withdrawn ICLR 2024 submission on attention and SVM in causal language modelling, "
# Kinds of texts: some W separates all next words, or none does.
KINDS = ("feasible", "infeasible")
# The logarithm is read from the last decade of a run that has taken at least so many steps, on so many texts of a kind.
_LONG, _TEXTS = 30_000, 10
# Of 1 - correlation at the end, if it is to have gone far enough.
_CLOSE = 0.02


def judged(summaries: Mapping[str, xarray.Dataset]) -> list[Claim]:
    """Return the claims on summaries of runs, those with equal scores (delta 0) and those with close ones."""
    equal = {run: one for run, one in summaries.items() if one.attrs["delta"] == 0}
    close = {run: one for run, one in summaries.items() if one.attrs["delta"] > 0}
    claims = []
    if equal:
        statement = "With equal scores of all other words, and a step of at most 1 / L, the direction of W tends to "
        claims.append(_theorem("equal", statement, "theorem with equal scores (recalled)", equal))
    if close:
        statement = "With scores of all other words within delta, and a step of at most 1 / L, the direction tends to "
        claims.append(_theorem("close", statement, "theorem with close scores (recalled)", close))
    return [*claims, _soft(summaries), _tied(summaries), _step(summaries)]


def _theorem(name: str, statement: str, where: str, runs: Mapping[str, xarray.Dataset]) -> Claim:
    measured, holds = {}, False
    undecided = _undecided(runs, "feasible")
    if not undecided:
        for run, one in runs.items():
            end = one.isel(snapshot=-1)
            measured[f"1 - correlation at step {int(end['snapshot'])}, {run}"] = read(end, "feasible_off")
            measured[f"exponent of 1 - correlation in ||W||, {run}"] = read(one, "feasible_off_exponent")
            measured[f"growth of ||W|| / ||W_mm|| by log k, {run}"] = read(one, "feasible_slope")
            measured[f"share of texts with all next words selected, {run}"] = read(one, "feasible_all_chosen")
        furthest = max(runs.values(), key=lambda one: one.attrs["step_size"])
        holds = (
            all(_falls(one, "feasible_off") for one in runs.values())
            and _arrives(furthest, "feasible_off")
            and float(furthest["feasible_all_chosen"]) == 1
        )
    expected = {label: 0.0 for label in measured if label.startswith("1 - ")}
    expected |= {label: 1.0 for label in measured if label.startswith(("growth", "share"))}
    return _claim(
        name,
        f"{statement}the hard-margin solution.",
        where,
        expected,
        measured,
        runs,
        Verdict.HOLDS if holds else Verdict.FAILS,
        undecided,
        "Of the texts that some W separates. Holds if 1 - correlation falls faster than 1 / ||W|| over the last decade "
        f"of every run, and in the one that gets furthest ends below {_CLOSE} with every next word selected. As the "
        "norm is a logarithm of the steps, the direction is reached very slowly.",
    )


def _soft(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured = {}
    undecided = _undecided(summaries, "infeasible")
    if not undecided:
        for run, one in summaries.items():
            end = one.isel(snapshot=-1)
            label = f"1 - correlation at step {int(end['snapshot'])}, {run}"
            measured[label] = read(end, "infeasible_off_soft")
            measured[f"exponent of 1 - correlation in ||W||, {run}"] = read(one, "infeasible_off_soft_exponent")
            measured[f"1 - correlation of soft and tied hard margin, {run}"] = read(one, "infeasible_apart")
            measured[f"share of texts where these differ, {run}"] = read(one, "infeasible_differ")
    holds = not undecided and _tends(summaries, "infeasible_off_soft")
    return _claim(
        "soft",
        "Where no W separates all next words, the direction of W tends to the soft-margin solution.",
        "experiments (recalled)",
        {label: 0.0 for label in measured if " at step " in label},
        measured,
        summaries,
        Verdict.HOLDS if holds else Verdict.FAILS,
        undecided,
        "Of the texts that ask one word for different next words. Holds if 1 - correlation falls faster than 1 / ||W|| "
        f"over the last decade of every run and ends below {_CLOSE} in those of the largest step. The logistic loss of "
        "an attended score is bounded: it gives up the rarer of two next words, or mixes both; the soft margin ranks "
        "the rarer second, before all others. The two are one only where the words are asked for equally often.",
    )


def _tied(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    measured, verdict = {}, Verdict.FAILS
    undecided = _undecided(summaries, "infeasible")
    if not undecided:
        for run, one in summaries.items():
            end = one.isel(snapshot=-1)
            measured[f"1 - correlation at step {int(end['snapshot'])}, {run}"] = read(end, "infeasible_off")
            measured[f"exponent of 1 - correlation in ||W||, {run}"] = read(one, "infeasible_off_exponent")
            measured[f"share of texts that keep the words of least risk, {run}"] = read(one, "infeasible_least")
            measured[f"share of next words selected, {run}"] = read(one, "infeasible_chosen")
        if _tends(summaries, "infeasible_off"):
            least = all(float(one["infeasible_least"]) == 1 for one in _furthest(summaries))
            verdict = Verdict.HOLDS if least else Verdict.CORRECTED
    expected = {label: 0.0 for label in measured if " at step " in label}
    return _claim(
        "tied",
        "Where no W separates all next words, the direction tends to the hard margin of the words of least risk, tied.",
        "theorems (recalled); this limit is ours",
        expected | {label: 1.0 for label in measured if "least risk" in label},
        measured,
        summaries,
        verdict,
        undecided,
        "1 - correlation is with the hard margin of the words that a run keeps attending to. Holds if it falls faster "
        f"than 1 / ||W|| over the last decade of every run, ends below {_CLOSE} in those of the largest step, and "
        "there all texts keep the words of least risk; with a correction if some keep others. Those are locally best: "
        "the better one is so far behind along the direction of the others that its part of the gradient dies out.",
    )


def _step(summaries: Mapping[str, xarray.Dataset]) -> Claim:
    smallest = min(one.attrs["step_size"] for one in summaries.values())
    first = {run: one for run, one in summaries.items() if one.attrs["step_size"] == smallest}
    largest = max(float(one["within"]) for one in first.values())
    rises = {f"rises of the recorded risk, {run}": float(one["rises"]) for run, one in summaries.items()}
    measured = {"largest step size times L, smallest step": largest} | rises
    holds = largest <= 1 and not any(int(one["rises"]) for one in first.values())
    return _claim(
        "step",
        "A step of at most 1 / L never raises the risk.",
        "assumption of both theorems (recalled)",
        {f"rises of the recorded risk, {run}": 0.0 for run in first},
        {name: (value, value, value) for name, value in measured.items()},
        summaries,
        Verdict.HOLDS if holds else Verdict.FAILS,
        _short(summaries),
        "L is ours, `language.score_bound`; the largest over all texts is meant. The larger step is beyond 1 / L, and "
        "follows the same path further.",
    )


def _falls(one: xarray.Dataset, name: str) -> bool:
    return float(one[f"{name}_exponent_high"]) < -1


def _arrives(one: xarray.Dataset, name: str) -> bool:
    return float(one[f"{name}_high"][-1]) < _CLOSE


def _tends(runs: Mapping[str, xarray.Dataset], name: str) -> bool:
    return all(_falls(one, name) for one in runs.values()) and all(_arrives(one, name) for one in _furthest(runs))


def _furthest(runs: Mapping[str, xarray.Dataset]) -> list[xarray.Dataset]:
    largest = max(one.attrs["step_size"] for one in runs.values())
    return [one for one in runs.values() if one.attrs["step_size"] == largest]


def _undecided(runs: Mapping[str, xarray.Dataset], kind: str) -> str:
    """Return why these runs decide nothing on texts of a kind, or nothing if they do."""
    fewest = min(int(one[f"{kind}_texts"]) for one in runs.values())
    return _short(runs) or (f"{fewest} {kind} texts are too few; at least {_TEXTS} are asked for." * (fewest < _TEXTS))


def _short(runs: Mapping[str, xarray.Dataset]) -> str:
    if min(int(one["snapshot"][-1]) for one in runs.values()) < _LONG:
        return f"Runs of less than {_LONG} steps are too short to tell a logarithm; the published size is 100000."
    return too_few(min(int(one.attrs["kept"]) for one in runs.values()))


def _claim(
    name: str,
    statement: str,
    where: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    summaries: Mapping[str, xarray.Dataset],
    verdict: Verdict,
    undecided: str,
    note: str,
) -> Claim:
    return concluded(
        f"lm-theorems:{name}",
        _SOURCE + where,
        statement,
        expected,
        measured,
        counts_of(summaries),
        verdict,
        undecided,
        note,
    )
