"""The strongest evidence against a claim: the criterion that fails, or the one that comes nearest to failing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from jaxattn.study.claims import Outcome

# How `str` of a Criterion writes it.
_CRITERION = re.compile(
    r"(?P<quantity>.*) is (?P<mean>\S+)(?: \[(?P<low>\S+), (?P<high>\S+)\])?; asked for: "
    r"(?P<asked>at least|at most|between|any number)(?: (?P<first>\S+))?(?: and (?P<second>\S+))? \((?P<outcome>\w+)\)",
    re.DOTALL,
)
_ORDER = (Outcome.BROKEN, Outcome.UNCLEAR, Outcome.MET)


def against(criteria: Sequence[str]) -> str:
    """Return the criterion that speaks most against a claim, as it is written in claims.json, and how near it comes.

    One that is broken comes first, then one that is not clear, then the one that is met with the least room: the
    distance from its threshold to the nearer end of the interval, over the size of the threshold (or of the number,
    where the threshold is 0).

    Args:
        criteria: of the statement, at least one.

    Raises:
        ValueError: a text that is no criterion.

    Example:
        >>> against(["x is 3; asked for: at least 1 (met)", "y is 2 [1.5, 2.5]; asked for: at least 1 (met)"])
        'y is 2 [1.5, 2.5]; asked for: at least 1 (met with 50 % to spare)'
    """
    outcome, room, text = min((_read(one) for one in criteria), key=lambda one: (_ORDER.index(one[0]), one[1]))
    if outcome is not Outcome.MET or not math.isfinite(room):
        return text
    return text.removesuffix("(met)") + f"(met with {_share(room)} to spare)"


def _read(text: str) -> tuple[Outcome, float, str]:
    """Return what a criterion says: its outcome, and how far its interval is inside of what is asked for."""
    found = _CRITERION.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a criterion, found {text!r}")
    mean = float(found["mean"])
    low, high = (float(found[name] or mean) for name in ("low", "high"))
    least = float(found["first"]) if found["asked"] in ("at least", "between") else -math.inf
    most = float(found["second"] or found["first"]) if found["asked"] in ("at most", "between") else math.inf
    rooms = [_relative(low - least, least, mean), _relative(most - high, most, mean)]
    return Outcome(found["outcome"]), min(rooms), text


def _relative(room: float, threshold: float, mean: float) -> float:
    size = abs(threshold) or abs(mean) or 1.0
    return room / size if math.isfinite(threshold) else math.inf


def _share(room: float) -> str:
    return f"{100 * room:.2g} %" if room < 1 else f"{100 * room:,.0f} %"
