"""The strongest evidence against a claim: the criterion that fails, or the one that comes nearest to failing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxattn.study.claims import Outcome

_ORDER = (Outcome.BROKEN, Outcome.UNCLEAR, Outcome.MET)
# A threshold that is a smaller part of its number stands for 0.
_ZERO = 1e-6


def against(criteria: Sequence[str], numbers: Sequence[Mapping[str, Any]]) -> str:
    """Return the criterion that speaks most against a claim, as it is written in claims.json, and how near it comes.

    One that is broken comes first, then one that is not clear, then the one that is met with the least room: the
    distance from its threshold to the nearer end of the interval, over the size of the threshold (or of the number,
    where the threshold is 0). A yes or no, such as "1: it does", is at no distance from what is asked for: among equal
    outcomes it comes last.

    Example:
        >>> from jaxattn.study.claims import Number, above
        >>> criteria = above("x", Number.exact(3), 1), above("y", Number(2, 1.5, 2.5), 1)
        >>> against([*map(str, criteria)], [criterion.numbers for criterion in criteria])
        'y is 2 [1.5, 2.5]; asked for: at least 1 (met with 50 % to spare)'
    """
    ranked = [
        (_ORDER.index(Outcome(criterion["outcome"])), _margin(criterion), text)
        for text, criterion in zip(criteria, numbers, strict=True)
    ]
    order, margin, text = min(ranked, key=lambda entry: entry[:2])
    if _ORDER[order] is not Outcome.MET or not math.isfinite(margin):
        return text
    spare = f"{100 * margin:.2g} %" if margin < 0.995 else f"{100 * margin:,.0f} %"
    return text.removesuffix("(met)") + f"(met with {spare} to spare)"


def _margin(criterion: Mapping[str, Any]) -> float:
    """Return how far a criterion's interval is inside of what is asked for; infinite if there is no such number."""
    mean, margins = criterion["mean"], [math.inf]
    is_exact = criterion["low"] == criterion["high"]
    for smaller, larger, threshold in (("least", "low", criterion["least"]), ("high", "most", criterion["most"])):
        if criterion[smaller] is None or criterion[larger] is None or (is_exact and {mean, threshold} <= {0, 1}):
            continue
        size = abs(threshold) if abs(threshold) > _ZERO * abs(mean or 0) else abs(mean or 0)
        margins.append((criterion[larger] - criterion[smaller]) / (size or 1.0))
    return min(margins)
