"""Count the seeds that a measurement keeps, and the others by the reason for which they are excluded."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool


def count(kept: Bool[np.ndarray, " seeds"], **reasons: Bool[np.ndarray, " seeds"]) -> dict[str, int]:
    """Return the attributes `attempted`, `kept`, one for each reason, and `unsolved` for all other seeds.

    The reasons are those of `claims.EXCLUDED`; a seed that is not kept counts for the first that applies.
    """
    counts, others = {"attempted": kept.size, "kept": int(kept.sum())}, ~kept
    for reason, applies in reasons.items():
        counts[reason] = int((others & applies).sum())
        others = others & ~applies
    return counts | {"unsolved": int(others.sum())}
