"""Results over the scales of the embeddings: the worst scale, and the best of the corrections fixed beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxattn.study.claims.criteria import Criterion, Number, Outcome, together


class Correction(NamedTuple):
    """A corrected statement.

    Attributes:
        sentence: the condition under which the statement is made.
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


def best(corrections: Sequence[Correction]) -> Correction:
    """Return the first correction that is met; if none is, the first that is unclear; else the first.

    So the correction fails only if every one of them is clearly broken.

    Args:
        corrections: the possible ones, fixed beforehand.
    """
    order = (Outcome.MET, Outcome.UNCLEAR, Outcome.BROKEN)
    return min(corrections, key=lambda one: order.index(together(one.criteria)))
