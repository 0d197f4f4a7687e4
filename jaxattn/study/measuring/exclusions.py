"""Count the seeds that a measurement keeps, and the others by the reason for which they are excluded."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool


def count(kept: Bool[np.ndarray, " seeds"], **reasons: Bool[np.ndarray, " seeds"]) -> dict[str, int]:
    """Return the attributes `attempted`, `kept`, one for each reason, and `unsolved` for all other seeds.

    Args:
        kept: whether a seed is kept.
        reasons: of `claims.EXCLUDED`; a seed that is not kept counts for the first of them that applies.

    Example:
        >>> kept, diverged = np.array([True, False, False]), np.array([False, True, False])
        >>> count(kept, diverged=diverged)
        {'attempted': 3, 'kept': 1, 'diverged': 1, 'unsolved': 1}
    """
    counts, others = {"attempted": kept.size, "kept": int(kept.sum())}, ~kept
    for reason, applies in reasons.items():
        counts[reason] = int((others & applies).sum())
        others = others & ~applies
    return counts | {"unsolved": int(others.sum())}


def only(kept: Bool[np.ndarray, " seeds"], tree: Any) -> Any:
    """Return a tree of arrays over seeds with the kept seeds alone."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)
