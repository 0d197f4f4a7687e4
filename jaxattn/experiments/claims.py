"""Claims of the papers, each with what was expected, what was measured, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import numpy as np
import xarray
from numpy.typing import ArrayLike

# Why a seed is left out, as the second stage counts it. An experiment counts by those that it knows.
LEFT_OUT = ("diverged", "labels", "ambiguous", "finite", "infeasible", "unsolved")
# With less than these no verdict is given. Drawn problems cost less than descents, so more are asked for.
LEAST_STEPS, _LEAST_SEEDS, LEAST_DRAWN = 1000, 8, 20


class Verdict(StrEnum):
    """What a measurement says of a claim."""

    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    FAILS = "does not hold"
    OPEN = "not decided"


@dataclass(frozen=True)
class Claim:
    """One line of claims.json.

    Attributes:
        id: experiment and, after a colon, which of its claims.
        source: paper and figure.
        statement: the claim in one sentence.
        expected: the published or predicted numbers, and where they are read.
        measured: means over the kept seeds, in the same order.
        interval: 95 % bootstrap intervals of those means, (low, high) each.
        counts: attempted, kept, and rejected by reason.
        verdict: see Verdict.
        note: the correction, or how the verdict was reached.
        seconds: that training, measuring and drawing took, all runs of the experiment together.
    """

    id: str
    source: str
    statement: str
    expected: Mapping[str, float]
    measured: Mapping[str, float]
    interval: Mapping[str, tuple[float, float]]
    counts: Mapping[str, Mapping[str, int]]
    verdict: Verdict
    note: str = ""
    seconds: float = field(default=0.0)

    def as_json(self) -> dict[str, object]:
        """Return the line as JSON values, numbers to six digits."""
        return {name: _rounded(value) for name, value in asdict(self).items()}


def concluded(
    name: str,
    source: str,
    statement: str,
    expected: Mapping[str, float],
    measured: Mapping[str, tuple[float, float, float]],
    counts: Mapping[str, Mapping[str, int]],
    verdict: Verdict,
    undecided: str,
    note: str,
) -> Claim:
    """Return the claim that means and intervals decide, or that is open for whatever reason `undecided` gives.

    Args:
        name: as `Claim.id`.
        source: as of a claim, like `statement`, `expected`, `counts`.
        statement: the claim in one sentence.
        expected: the published or predicted numbers.
        measured: mean, low and high; numbers without an interval have three equal ones.
        counts: of the runs.
        verdict: if it is decided.
        undecided: why it is not, or nothing.
        note: if it is decided.
    """
    return Claim(
        id=name,
        source=source,
        statement=statement,
        expected=expected,
        measured={label: mean for label, (mean, _, _) in measured.items()},
        interval={label: (low, high) for label, (_, low, high) in measured.items() if low < high},
        counts=counts,
        verdict=Verdict.OPEN if undecided else verdict,
        note=undecided or note,
    )


def counts_of(runs: Mapping[str, xarray.Dataset]) -> dict[str, dict[str, int]]:
    """Return attempted, kept and rejected seeds or problems of each run, for a claim or under a figure."""
    counted = ("attempted", "kept", *LEFT_OUT)
    return {name: {c: int(one.attrs[c]) for c in counted if c in one.attrs} for name, one in runs.items()}


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
    if few := too_few(kept, _LEAST_SEEDS):
        return few
    if missing:
        return f"No weights were kept at the steps {missing} that the paper is compared at."
    return ""


def too_short(steps: int) -> str:
    """Return why a run of so few steps cannot decide a claim, or nothing if it can."""
    return f"A run of {steps} steps is too short to decide; the published size is 2000." if steps < LEAST_STEPS else ""


def too_few(kept: int, least: int = LEAST_DRAWN) -> str:
    """Return why so few kept seeds cannot decide a claim, or nothing if they can."""
    return f"{kept} kept seeds are too few to decide; at least {least} are asked for." if kept < least else ""


def verdict(good: Verdict, holds: bool, undecided: str) -> Verdict:
    """Return the verdict on a claim that is `good` if it holds, and open for whatever reason `undecided` gives."""
    if undecided:
        return Verdict.OPEN
    return good if holds else Verdict.FAILS


def read(one: xarray.Dataset, name: str) -> tuple[float, float, float]:
    """Return an estimated mean and its interval, of a dataset with the variables of `statistics.variables`."""
    return float(one[name]), float(one[f"{name}_low"]), float(one[f"{name}_high"])


def agree(measured: ArrayLike, errors: ArrayLike, expected: ArrayLike) -> bool:
    """Whether every mean lies within two standard errors of the published one.

    The published means are over as many seeds as ours and have the same error, so the error of a
    difference is sqrt(2) times that of one mean.
    """
    difference = np.abs(np.asarray(measured) - np.asarray(expected))
    return bool(np.all(difference <= 2 * np.sqrt(2) * np.asarray(errors)))


def _rounded(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
