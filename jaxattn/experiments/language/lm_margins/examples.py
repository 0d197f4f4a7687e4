"""Hand-built margins for which the verdict of the claim is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray

from jaxattn.study.claims.claim import Datasets, Verdict

STEPS = np.array([1, 100, 10_000])


def made(
    end: Sequence[float] = (50.0, 50.0, 0.0), start: float = 0.0, steps: np.ndarray = STEPS, seeds: int = 24
) -> xarray.Dataset:
    """Return two prefixes of three words per text; half of the texts have a conflict of words 1 and 2 after word 0.

    Args:
        end: margins at the last step: without a conflict; with one, over other words; and over words that also follow.
        start: all margins at the first step.
        steps: of the snapshots.
        seeds: number of texts.
    """
    rng = np.random.default_rng(0)
    feasible = np.arange(seeds) < seeds // 2
    others = np.broadcast_to(np.array([[True, False, True], [True, True, False]]), (seeds, 2, 3))
    follows = np.broadcast_to(np.array([[False, False, True], [False, True, False]]), (seeds, 2, 3))
    follows = follows & ~feasible[:, None, None]
    kind = np.where(feasible[:, None, None], 0, np.where(follows, 2, 1))
    along = np.linspace(0, 1, len(steps))[None, :, None, None]
    margins = (
        start + (np.asarray(end)[kind][:, None] - start) * along + 0.1 * rng.normal(size=(seeds, len(steps), 2, 3))
    )
    return xarray.Dataset(
        {
            "margins": (("seed", "snapshot", "prefix", "word"), np.where(others[:, None], margins, 0.0)),
            "others": (("seed", "prefix", "word"), others),
            "follows": (("seed", "prefix", "word"), follows),
            "weight": (("seed", "prefix"), np.broadcast_to([2.0, 1.0], (seeds, 2))),
            "feasible": (("seed",), feasible),
        },
        {"seed": np.arange(seeds), "snapshot": steps},
        {"attempted": seeds, "kept": seeds, "diverged": 0, "unsolved": 0, "run": "texts"},
    )


def runs(**changes: Any) -> Datasets:
    """Return the one run of the experiment."""
    return {"texts": made(**changes)}


def of_positive() -> dict[Verdict, Datasets]:
    """All margins are large; all but those over words that also follow; not all others; or it is undecided."""
    return {
        Verdict.HOLDS: runs(end=(50.0, 50.0, 50.0)),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(end=(3.0, 50.0, 0.0)),
        Verdict.OPEN: runs(end=(5.0, 50.0, 50.0)),
    }
