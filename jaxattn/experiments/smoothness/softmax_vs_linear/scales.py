"""Results over the scales of the embeddings: the worst scale, thresholds in scale, and the best correction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxattn.study.claims.criteria import Criterion, Number, Outcome, above, together


class Correction(NamedTuple):
    """A corrected statement.

    Attributes:
        sentence: the statement.
        criteria: the criteria for it.
    """

    sentence: str
    criteria: tuple[Criterion, ...]


def least(numbers: Iterable[Number]) -> Number:
    """Return the smallest mean, low and high end: above a threshold if all numbers are, clearly below if one is."""
    return Number(*(min(ends) for ends in zip(*numbers, strict=True)))


def most(numbers: Iterable[Number]) -> Number:
    """Return the largest mean, low and high end: below a threshold if all numbers are, clearly above if one is."""
    return Number(*(max(ends) for ends in zip(*numbers, strict=True)))


def from_where(scale: np.ndarray, above: np.ndarray) -> float | None:
    """Return the smallest scale from which all are above; None if the last is not."""
    below = np.flatnonzero(~above)
    first = int(below[-1]) + 1 if len(below) else 0
    return float(scale[first]) if first < len(scale) else None


def crossing(scale: np.ndarray, ratio: np.ndarray) -> float | None:
    """Return the scale of the last zero of a ratio, interpolated in the logarithm of scale; None if there is none."""
    changes = np.flatnonzero(np.sign(ratio[1:]) != np.sign(ratio[:-1]))
    if not len(changes):
        return None
    k = int(changes[-1])
    x = np.log(scale)
    return float(np.exp(x[k] + (x[k + 1] - x[k]) * ratio[k] / (ratio[k] - ratio[k + 1])))


def from_some_scale(quantity: str, scale: np.ndarray, numbers: Sequence[Number], threshold: float) -> Correction:
    """Return the correction that a number is above a threshold from some scale on.

    The scale is the smallest one from which all are, or the largest scale if the last one is not.

    Args:
        quantity: the name of the number.
        scale: increasing.
        numbers: one per scale.
        threshold: the threshold.
    """
    met = np.array([above(quantity, one, threshold).outcome is Outcome.MET for one in numbers])
    found = from_where(scale, met)
    start = float(scale[-1]) if found is None else found
    of_these = least(one for s, one in zip(scale, numbers, strict=True) if s >= start)
    named = above(f"{quantity}, smallest over scales from {start:g} on,", of_these, threshold)
    sentence = f"only from scale {start:g} on, where the {quantity} is at least {of_these.low:.3g}."
    return Correction(sentence, (named,))


def best(corrections: Sequence[Correction]) -> Correction:
    """Return the first correction that is met; if none is, the first that is unclear; else the first.

    So the correction fails only if every one of them is clearly broken.

    Args:
        corrections: the possible ones, fixed beforehand.
    """
    order = (Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN)
    return min(corrections, key=lambda one: order.index(together(one.criteria)))
