"""Count the seeds that a measurement keeps, the others by reason, and those whose cosines mean little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from jaxattn import svm


def count(kept: Bool[np.ndarray, " seeds"], **reasons: Bool[np.ndarray, " seeds"]) -> dict[str, int]:
    """Return the attributes `attempted`, `kept`, one for each reason, and `unsolved` for all other seeds.

    The reasons are those of `claims.EXCLUDED`; a seed that is not kept counts for the first that applies.
    """
    counts, others = {"attempted": kept.size, "kept": int(kept.sum())}, ~kept
    for reason, applies in reasons.items():
        counts[reason] = int((others & applies).sum())
        others = others & ~applies
    return counts | {"unsolved": int(others.sum())}


def doubted(solutions: Sequence[svm.Solution], kept: Bool[np.ndarray, " attempts"]) -> dict[str, int]:
    """Return the counts of `claims.DOUBTED` over kept seeds, from the solutions of all, one batch per norm.

    A seed counts as `not_unique` if its solution in some norm is known not to be unique. It counts as
    `uniqueness_unknown` if there is no such norm, but not all solutions are known to be unique.
    """
    codes = np.stack([np.asarray(one.unique) for one in solutions], axis=1)[kept]
    several = (codes == svm.Unique.NO).any(axis=1)
    unknown = (codes == svm.Unique.UNKNOWN).any(axis=1) & ~several
    return {"not_unique": int(several.sum()), "uniqueness_unknown": int(unknown.sum())}


def only(kept: Bool[np.ndarray, " seeds"], tree: Any) -> Any:
    """Return a tree of arrays over seeds with the kept seeds alone."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)
