"""How many seeds were attempted, kept and excluded, and when these are too few to decide a claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xarray

# Why a seed is excluded, as the second stage counts it. An experiment counts by those that it knows.
EXCLUDED = ("diverged", "labels", "ambiguous", "finite", "infeasible", "unsolved")
# Why a correlation with the max-margin solution of a kept seed says little.
DOUBTED = {"not_unique": "with a solution that is not unique", "uniqueness_unknown": "with one not known to be unique"}
# With less than these no verdict is given. Drawn problems cost less than descents, so more are asked for.
LEAST_STEPS, LEAST_SEEDS, LEAST_DRAWN = 1000, 8, 20


def counts_of(runs: Mapping[str, xarray.Dataset]) -> dict[str, dict[str, int]]:
    """Return attempted, kept, excluded and doubted seeds or problems of each run, for a claim or under a figure."""
    counted = ("attempted", "kept", *EXCLUDED, *DOUBTED)
    return {name: {c: int(one.attrs[c]) for c in counted if c in one.attrs} for name, one in runs.items()}


def doubts(counts: Mapping[str, int]) -> str:
    """Return in words how many kept seeds have a solution that is not known to be unique, or nothing if all are.

    Example:
        >>> doubts({"attempted": 9, "kept": 8, "not_unique": 2, "uniqueness_unknown": 0})
        ', 2 of them with a solution that is not unique'
    """
    return "".join(f", {counts[name]} of them {words}" for name, words in DOUBTED.items() if counts.get(name))


def total(runs: Mapping[str, xarray.Dataset]) -> dict[str, int]:
    """Return the counts of several runs of one kind, added up."""
    counts = list(counts_of(runs).values())
    return {name: sum(one[name] for one in counts) for name in (counts[0] if counts else ())}


def too_little(summary: xarray.Dataset, published: Iterable[int] = ()) -> str:
    """Return why a run cannot decide a claim, or nothing if it can.

    Args:
        summary: a comparison, or what is left of it: its snapshots and counts are read.
        published: the steps that the verdict compares with the paper.
    """
    steps, kept = summary["snapshot"].values, int(summary.attrs["kept"])
    last, missing = int(steps[-1]), sorted(set(published) - set(steps.tolist()))
    if short := too_short(last):
        return short
    if few := too_few(kept, LEAST_SEEDS):
        return few
    if missing:
        return f"No weights were kept at the steps {missing} that the paper is compared at."
    return ""


def too_short(steps: int) -> str:
    """Return why a run of so few steps cannot decide a claim, or nothing if it can."""
    return f"A run of {steps} steps is too short to decide; the published size is 2000." if steps < LEAST_STEPS else ""


def too_few(kept: int, least: int = LEAST_DRAWN) -> str:
    """Return why so few kept seeds cannot decide a claim, or nothing if they can."""
    return f"{kept} kept seeds are too few to decide; at least {least} are needed." if kept < least else ""
