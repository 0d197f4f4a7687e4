"""Count the kept seeds whose max-margin solution is not unique, or not known to be: their cosines mean little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from jaxattn import svm


def doubted(solutions: Sequence[svm.Solution], kept: Bool[np.ndarray, " attempts"]) -> dict[str, int]:
    """Return the counts of `claims.DOUBTED` over kept seeds, from the solutions of all, one batch per norm.

    A seed counts as `not_unique` if its solution in some norm is known not to be unique. It counts as
    `uniqueness_unknown` if there is no such norm, but not all solutions are known to be unique.
    """
    codes = np.stack([np.asarray(one.unique) for one in solutions], axis=1)[kept]
    several = (codes == svm.Unique.NO).any(axis=1)
    unknown = (codes == svm.Unique.UNKNOWN).any(axis=1) & ~several
    return {"not_unique": int(several.sum()), "uniqueness_unknown": int(unknown.sum())}
