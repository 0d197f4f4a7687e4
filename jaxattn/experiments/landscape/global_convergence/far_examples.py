"""Hand-built starts from far along wrong selections for which the verdicts of the claims are known."""

from __future__ import annotations

import numpy as np
import xarray

from jaxattn.experiments.landscape.global_convergence.examples import named, spreads
from jaxattn.study.claims.claim import Datasets, Verdict


def far(
    elsewhere: int = 20,
    told: float = 0.95,
    behind: float = 1.4,
    off: float = 0.001,
    moving: int = 0,
    R: float = 10.0,
    seeds: int = 100,
    n: int = 4,
) -> xarray.Dataset:
    """Return starts of which the first few leave an input unserved, and the next few have not converged.

    Args:
        elsewhere: number that leave an input unserved.
        told: share of each outcome that is predicted.
        behind: by how much the input is behind.
        off: 1 - cos with the solution of the served inputs.
        moving: number of further starts with an input that is behind, near no solution.
        R: of the starts.
        seeds: number of seeds, all kept.
        n: inputs.
    """
    place = np.arange(seeds)
    wrong = place < elsewhere + moving
    rank = np.where(wrong, place / max(elsewhere + moving, 1), (place - elsewhere - moving) / max(seeds - elsewhere, 1))
    predicted = wrong == (rank < told - 1e-9)
    variables = {
        "optimal": (("seed",), ~wrong),
        "stays": (("seed",), np.zeros(seeds, bool)),
        "unserved": (("seed",), wrong.astype(int)),
        "behind": (("seed",), np.where(wrong, behind, 0.0)),
        "off_served": (("seed",), np.where((place >= elsewhere) & wrong, 0.3, off)),
        "elsewhere": (("seed",), predicted),
        "apart": (("seed",), rank < 0.9),
    }
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "infeasible": 0, "unsolved": 0}
    told_of = {"start": "far", "n": n, "T": 5, "d": 5, "spread": 0.0, "R": R, "steps": 8000}
    run = {"run": f"from R W_alpha, n = {n}, d = 5, R = {R:g}"}
    return xarray.Dataset(variables, {"seed": place}, counts | run | told_of)


def of_equal_scores() -> dict[Verdict, Datasets]:
    """All are right; some leave inputs unserved; one does so without a reason; or some still move."""
    return {
        Verdict.HOLDS: {**spreads(), **named(far(0))},
        Verdict.CORRECTED: {**spreads(0.9, lost=1e-12), **named(far())},
        Verdict.FAILS: {**spreads(0.9, lost=1e-12), **named(far(behind=0.8))},
        Verdict.OPEN: {**spreads(0.9, lost=0.1), **named(far(0, moving=3))},
    }


def of_basins() -> dict[Verdict, Datasets]:
    """The prediction separates the outcomes; it guesses; or it is close to the threshold."""
    return {
        Verdict.HOLDS: {**spreads(), **named(far(), far(R=1.0))},
        Verdict.FAILS: {**spreads(), **named(far(told=0.5), far(R=1.0))},
        Verdict.OPEN: {**spreads(), **named(far(told=0.7), far(R=1.0))},
    }
