"""The strongest evidence against a claim: the criterion that fails, or the one that comes nearest to failing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxattn.study.claims import Outcome

_ORDER = (Outcome.BROKEN, Outcome.UNCLEAR, Outcome.MET)


def against(criteria: Sequence[str], numbers: Sequence[Mapping[str, Any]]) -> str:
    """Return the criterion that speaks most against a claim, as it is written in claims.json, and how near it comes.

    One that is broken comes first, then one that is not clear, then the one that is met with the least room: the
    distance from its threshold to the nearer end of the interval, over the size of the threshold (or of the number,
    where the threshold is 0).

    Args:
        criteria: of the statement, at least one, in words.
        numbers: of the same criteria, as `Criterion.numbers` has them.

    Example:
        >>> from jaxattn.study.claims import Number, above
        >>> criteria = above("x", Number.exact(3), 1), above("y", Number(2, 1.5, 2.5), 1)
        >>> against([str(one) for one in criteria], [one.numbers for one in criteria])
        'y is 2 [1.5, 2.5]; asked for: at least 1 (met with 50 % to spare)'
    """
    found = [(Outcome(one["outcome"]), _room(one), text) for text, one in zip(criteria, numbers, strict=True)]
    outcome, room, text = min(found, key=lambda one: (_ORDER.index(one[0]), one[1]))
    if outcome is not Outcome.MET or not math.isfinite(room):
        return text
    return text.removesuffix("(met)") + f"(met with {_share(room)} to spare)"


def _room(one: Mapping[str, Any]) -> float:
    """Return how far a criterion's interval is inside of what is asked for; infinite if there is no such number."""
    rooms = [math.inf]
    for smaller, larger, threshold in (("least", "low", one["least"]), ("high", "most", one["most"])):
        if one[smaller] is not None and one[larger] is not None:
            size = abs(threshold) or abs(one["mean"] or 0) or 1.0
            rooms.append((one[larger] - one[smaller]) / size)
    return min(rooms)


def _share(room: float) -> str:
    return f"{100 * room:.2g} %" if room < 1 else f"{100 * room:,.0f} %"
