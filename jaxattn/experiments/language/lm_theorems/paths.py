"""Shared by the judges of plain descent from W = 0: criteria along the steps, and when training is too short."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import xarray

from jaxattn.study.claims import Criterion, Datasets, Judgement, Number, below, counts_of, number, too_few

# The logarithm is fitted to the last decade of a run with at least this many steps, on at least this many texts of a
# kind.
_LONG, TEXTS = 30_000, 10
# Thresholds for 1 - cos at the end, and for its exponent in ||W||, if it falls faster than 1 / ||W||.
CLOSE, _EXPONENT = 0.02, -1.0


def plain(summaries: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from W = 0, which are followed along their steps."""
    return {run: one for run, one in summaries.items() if "radius" not in one.attrs}


def started(summaries: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs from other starts, of which only the end is judged."""
    return {run: one for run, one in summaries.items() if "radius" in one.attrs}


def tends(runs: Datasets, name: str) -> tuple[Criterion, ...]:
    """Ask that an error falls faster than 1 / ||W|| in every run and ends small for the largest step."""
    falls = (
        below(f"exponent of ||W|| in 1 - cos, {run},", number(one, f"{name}_exponent"), _EXPONENT)
        for run, one in runs.items()
    )
    arrives = (
        below(f"1 - cos at step {int(one['snapshot'][-1])}, {run},", number(one.isel(snapshot=-1), name), CLOSE)
        for run, one in furthest(runs).items()
    )
    return (*falls, *arrives)


def none(what: str, runs: Datasets, name: str) -> tuple[Criterion, ...]:
    """Ask that a count is 0 in every run."""
    return tuple(below(f"number of {what}, {run},", Number.exact(int(one[name])), 0) for run, one in runs.items())


def furthest(runs: Datasets) -> dict[str, xarray.Dataset]:
    """Return the runs with the largest step."""
    largest = max(one.attrs["step_size"] for one in runs.values())
    return {run: one for run, one in runs.items() if one.attrs["step_size"] == largest}


def largest(runs: Datasets) -> float:
    """Return the largest step size in units of 1 / L, over all texts."""
    return max(float(one["within"]) for one in runs.values())


def texts(runs: Datasets, kind: str) -> str:
    """Say how many texts of a kind a run has."""
    numbers = sorted({int(one[f"{kind}_texts"]) for one in runs.values()})
    return f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def undecided(runs: Datasets, kind: str) -> str:
    """Return why these runs decide nothing about texts of a kind, or nothing if they do."""
    fewest = min(int(one[f"{kind}_texts"]) for one in runs.values())
    return short(runs) or (f"{fewest} {kind} texts are too few; at least {TEXTS} are needed." * (fewest < TEXTS))


def short(runs: Datasets) -> str:
    """Return why these runs are too short or too few to decide, or nothing if they can."""
    if min(int(one["snapshot"][-1]) for one in runs.values()) < _LONG:
        return f"Runs of fewer than {_LONG} steps are too short to identify a logarithm; the published size is 100000."
    return too_few(min(int(one.attrs["kept"]) for one in runs.values()))


def withheld(runs: Datasets, undecided: str) -> Judgement:
    """Return the judgement on runs that decide nothing, with their counts."""
    return dataclasses.replace(Judgement.withheld(undecided), counts=counts_of(runs))


def judgement(
    runs: Datasets,
    measured: Mapping[str, Number],
    expected: Mapping[str, float],
    stated: tuple[Criterion, ...],
    corrected: tuple[Criterion, ...] = (),
    correction: str = "",
    undecided: str = "",
    remark: str = "",
) -> Judgement:
    """Return the judgement on these runs; arguments as the fields of `Judgement`, measured numbers with intervals."""
    return Judgement(
        numbers=measured,
        expected=expected,
        counts=counts_of(runs),
        stated=stated,
        corrected=corrected,
        correction=correction,
        undecided=undecided,
        remark=remark,
    )
