"""Measured datasets built by hand: what the three claims have to say of them is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from jaxattn.descent import PUBLISHED_EPSILON
from jaxattn.experiments.local.made import STEPS, long_run, named
from jaxattn.study.claims.claim import Datasets, Verdict

_PENALTIES = (1e-100, 1e-30, 1e-16, 1e-8)
# Distances from the solution, 1 - cos, at STEPS: at a standstill; falling on; at the edge of what counts as falling on,
# a factor of 3 from about step 2000 to the last one.
STANDS, FALLS = 6e-3, np.minimum(1, 10.0 * STEPS**-1.0)
_NEAR_2000 = STEPS[np.argmin(np.abs(np.log(STEPS / 2000)))]
_EDGE = 0.1 * STEPS ** (-np.log(3) / np.log(STEPS[-1] / _NEAR_2000))


def along_the_path(penalty: float) -> float:
    """Return the distance at which a penalty rests on the regularization path."""
    return 3 / np.log(penalty) ** 2


def runs(
    separate: ArrayLike = STANDS,
    joint: ArrayLike = FALLS,
    path: Callable[[float], ArrayLike] = along_the_path,
    ratio: float = 1.0,
) -> Datasets:
    """Return the runs of the experiment: without and with penalties, and as published.

    Args:
        separate: distance along the steps without a penalty, a norm of each its own.
        joint: the same with one norm.
        path: distance along the steps under a penalty.
        ratio: of the gradient's length at the end of the published run to that of the penalty.
    """
    rules = "exact_normalized_gd", "jointly_normalized_gd"
    free = [long_run(off, "KQ", rule) for off, rule in zip((separate, joint), rules, strict=True)]
    penalized = [long_run(path(penalty), "KQ", rule, penalty, spread=0.05) for rule in rules for penalty in _PENALTIES]
    others = [
        long_run(2e-3, "KQ", penalty=PUBLISHED_EPSILON, ratio=ratio),
        long_run(0.5, "KQ"),
        long_run(0.3, "KQ", "gd"),
        long_run(1e-2, "KQ", rules[0], scale=0.01),
    ]
    return named([*free, *penalized, *others])


def of_published() -> dict[Verdict, Datasets]:
    """Both gradients are of one length; the risk's is three times as long; or they may balance or not."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(ratio=3.0), Verdict.OPEN: runs(ratio=1.25)}


def of_alone() -> dict[Verdict, Datasets]:
    """Both rules go on; the joint one alone; neither; or the joint one may go on or not."""
    return {
        Verdict.HOLDS: runs(separate=FALLS),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(joint=STANDS),
        Verdict.OPEN: runs(joint=_EDGE),
    }


def of_path() -> dict[Verdict, Datasets]:
    """The distance falls with the penalty; it does not change; or it falls by about the factor that is asked for."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(path=lambda _: 1e-2),
        Verdict.OPEN: runs(path=lambda penalty: along_the_path(penalty) ** (np.log(3) / np.log(30**2 / 8**2))),
    }
