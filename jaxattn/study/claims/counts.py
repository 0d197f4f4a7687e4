"""Count attempted, kept and excluded seeds, and tell whether these are too few to decide a claim."""

from __future__ import annotations

from collections.abc import Mapping

import xarray

# Reasons for excluding a seed, as counted by the measurement; an experiment uses those that apply to it.
EXCLUDED = ("diverged", "labels", "ambiguous", "finite", "infeasible", "unsolved")
# Reasons why the cosine with a kept seed's max-margin solution has little meaning.
DOUBTED = {
    "not_unique": "with a solution that is not unique",
    "uniqueness_unknown": "with a solution whose uniqueness is unknown",
}
# No verdict is given with fewer steps or problems; without training these are cheaper than seeds, so more are required.
LEAST_STEPS, LEAST_DRAWN = 1000, 20


def counts_of(runs: Mapping[str, xarray.Dataset]) -> dict[str, dict[str, int]]:
    """Return attempted, kept, excluded and doubtful seeds or problems of each run, for a claim or below a figure."""
    counted = ("attempted", "kept", *EXCLUDED, *DOUBTED)
    return {name: {c: int(one.attrs[c]) for c in counted if c in one.attrs} for name, one in runs.items()}


def doubts(counts: Mapping[str, int]) -> str:
    """Say how many kept seeds have a solution that is not known to be unique: ", 2 of them with ..."; "" if none."""
    return "".join(f", {counts[name]:,} of them {words}" for name, words in DOUBTED.items() if counts.get(name))


def total(runs: Mapping[str, xarray.Dataset]) -> dict[str, int]:
    """Return the counts of several runs of one kind, added up."""
    counts = list(counts_of(runs).values())
    return {name: sum(one[name] for one in counts) for name in (counts[0] if counts else ())}


def too_few(kept: int, least: int = LEAST_DRAWN) -> str:
    """Return why this many kept seeds cannot decide a claim; empty if they can."""
    return f"{kept} kept seeds are too few to decide; at least {least} are needed." if kept < least else ""
