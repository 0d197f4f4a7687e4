"""Hand-built datasets for which the verdicts of the claims on the limit of (K, Q) are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from jaxattn.experiments.local.made import SEEDS, STEPS, long_run, named
from jaxattn.study.claims.claim import Datasets, Verdict

# Distances from the solution, 1 - cos, at STEPS: stalled; still falling; and, for a constant step, which makes W grow
# like k^2, at the threshold of still falling.
STANDS, FALLS = 6e-3, np.minimum(1, 10.0 * STEPS**-1.0)
EDGE = 0.1 * STEPS**-0.24
RULES = {"separate": "exact_normalized_gd", "joint": "jointly_normalized_gd"}


def runs(
    published: ArrayLike = STANDS,
    constant: ArrayLike = STANDS,
    falls: ArrayLike = FALLS,
    margin: float = 0.999,
    drift: float = 1.3,
    balance: float = 1.001,
    joint: float = 1.001,
) -> Datasets:
    """Return the runs of the experiment.

    Args:
        published: distance along the steps of the published rule.
        constant: with a constant step of another size, or a joint norm.
        falls: with decreasing steps; the same for both normalizations unless two are given.
        margin: margin ratio with decreasing steps.
        drift: ratio of ||K|| and ||Q|| with a constant step and separate norms.
        balance: the same with decreasing steps.
        joint: the same with a joint norm.
    """
    made = [long_run(published, "KQ", RULES["separate"], balance=drift)]
    for name, rule in RULES.items():
        one = name == "joint"
        for size in (0.3, 1.0, 3.0):
            made.append(long_run(constant, "KQ", rule, step_size=size, balance=joint if one else drift))
            made += [
                long_run(falls, "KQ", rule, margin=margin, balance=joint if one else balance, step=step, step_size=size)
                for step in ("falling", "relative")
            ]
    room = np.linspace(0.05, 0.5, SEEDS)
    added = {"room": (("seed",), room), "complementarity": (("seed",), room[::-1].copy())}
    return named([one.assign(added) for one in made])


def of_direction() -> dict[Verdict, Datasets]:
    """All keep falling; only with decreasing steps; none; or the published one is undecided."""
    return {
        Verdict.HOLDS: runs(published=FALLS, constant=FALLS),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(falls=STANDS),
        Verdict.OPEN: runs(published=EDGE),
    }


def of_balance() -> dict[Verdict, Datasets]:
    """K and Q have equal norms; only with a joint norm; never; or close to the threshold as published."""
    return {
        Verdict.HOLDS: runs(drift=1.001),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(joint=1.3),
        Verdict.OPEN: runs(drift=1.05),
    }
