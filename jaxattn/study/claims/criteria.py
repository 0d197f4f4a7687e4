"""Criteria: bounds that a number's interval meets, breaks, or leaves unclear."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Outcome(StrEnum):
    """The outcome of a criterion."""

    MET = "met"
    BROKEN = "broken"
    UNCLEAR = "unclear"


class Number(NamedTuple):
    """A measured number with the bounds of its 95 % interval; for an exact number all three are equal."""

    mean: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Number:
        """Return a number without an interval: a count, a largest error, a certified value."""
        return cls(float(value), float(value), float(value))

    def minus(self, other: Number) -> Number:
        """Return the difference of two independent numbers; the half-widths of their intervals add in quadrature."""
        mean = self.mean - other.mean
        below = math.hypot(self.mean - self.low, other.high - other.mean)
        above = math.hypot(self.high - self.mean, other.mean - other.low)
        return Number(mean, mean - below, mean + above)

    def apart_from(self, other: Number) -> Number:
        """Return the difference, with an interval above or below 0 only if the two intervals are disjoint."""
        return Number(self.mean - other.mean, self.low - other.high, self.high - other.low)


@dataclass(frozen=True)
class Criterion:
    """A number must lie in `[least, most]`; `quantity` names it in words.

    The criterion is met if the number's whole interval lies inside, broken if it lies entirely outside, and unclear
    otherwise, or if the number or a bound of its interval is NaN.
    """

    quantity: str
    value: Number
    least: float = -math.inf
    most: float = math.inf

    @property
    def outcome(self) -> Outcome:
        """Whether the criterion is met, broken or unclear."""
        _, low, high = self.value
        if any(math.isnan(one) for one in (*self.value, self.least, self.most)):
            return Outcome.UNCLEAR
        if self.least <= low and high <= self.most:
            return Outcome.MET
        return Outcome.BROKEN if high < self.least or low > self.most else Outcome.UNCLEAR

    @property
    def more_seeds(self) -> float:
        """How many times as many seeds would decide, if intervals shrank like a root; infinite if none would."""
        if self.outcome is not Outcome.UNCLEAR:
            return 1.0
        mean, low, high = self.value
        inside = [bound for bound in (self.least, self.most) if low <= bound <= high]
        if not inside or mean in inside or math.isnan(mean):
            return math.inf
        return max(((mean - low if bound < mean else high - mean) / (mean - bound)) ** 2 for bound in inside)

    @property
    def numbers(self) -> dict[str, Any]:
        """The criterion as JSON values: quantity, mean, low, high, least, most, outcome; null if not finite."""
        found = self.value._asdict() | {"least": self.least, "most": self.most}
        finite = {name: float(one) if math.isfinite(one) else None for name, one in found.items()}
        return {"quantity": self.quantity} | finite | {"outcome": str(self.outcome)}

    def __str__(self) -> str:
        asked = {
            (True, True): f"between {self.least:.4g} and {self.most:.4g}",
            (True, False): f"at least {self.least:.4g}",
            (False, True): f"at most {self.most:.4g}",
            (False, False): "any number",
        }[math.isfinite(self.least), math.isfinite(self.most)]
        return f"{self.quantity} is {_said(self.value)}; asked for: {asked} ({self.outcome})"


@dataclass(frozen=True)
class Agreement(Criterion):
    """A difference from a published number must be zero.

    The criterion is broken if 0 lies outside the interval of the difference, and met if 0 lies inside and the interval
    lies inside `[least, most]`, which bounds the difference. It is unclear if the measurement is too coarse for that.
    """

    @property
    def outcome(self) -> Outcome:
        """Whether the two numbers agree."""
        inside = super().outcome
        if any(math.isnan(one) for one in self.value):
            return Outcome.UNCLEAR
        if not self.value.low <= 0 <= self.value.high:
            return Outcome.BROKEN
        return Outcome.MET if inside is Outcome.MET else Outcome.UNCLEAR


def above(quantity: str, value: Number, threshold: float) -> Criterion:
    """Require a number of at least the threshold."""
    return Criterion(quantity, value, least=threshold)


def below(quantity: str, value: Number, threshold: float) -> Criterion:
    """Require a number of at most the threshold."""
    return Criterion(quantity, value, most=threshold)


def between(quantity: str, value: Number, least: float, most: float) -> Criterion:
    """Require a number between two thresholds."""
    return Criterion(quantity, value, least, most)


def agrees(quantity: str, mean: float, error: float, expected: float, within: float) -> Agreement:
    """Require a mean that agrees with a published mean over as many seeds, which has the same standard error.

    The standard error of the difference is sqrt(2) times that of one mean; its interval extends by two of these to each
    side. The two count as equal if the whole interval is at most `within` from 0.
    """
    half = 2 * math.sqrt(2) * float(error)
    difference = float(mean) - float(expected)
    value = Number(difference, difference - half, difference + half)
    return Agreement(f"{quantity}, less the published {expected:.4g},", value, -within, within)


def together(criteria: Iterable[Criterion]) -> Outcome:
    """Return whether all of at least one criterion are met, any is broken, or neither is clear."""
    outcomes = {criterion.outcome for criterion in criteria}
    if not outcomes:
        raise ValueError("criteria: expected at least one, found none")
    if Outcome.BROKEN in outcomes:
        return Outcome.BROKEN
    return Outcome.UNCLEAR if Outcome.UNCLEAR in outcomes else Outcome.MET


def _said(value: Number) -> str:
    mean, low, high = value
    return f"{mean:.4g}" if low == mean == high else f"{mean:.4g} [{low:.4g}, {high:.4g}]"
