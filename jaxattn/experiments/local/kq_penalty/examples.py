"""Hand-built datasets for which the verdicts of the claims are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from jaxattn.descent import PUBLISHED_EPSILON
from jaxattn.experiments.local.made import SEEDS, long_run, named
from jaxattn.study.claims.claim import Datasets, Verdict

_PENALTIES = (1e-100, 1e-30, 1e-16, 1e-8)


def along_the_path(penalty: float) -> float:
    """Return the distance of the regularization path from the solution at a penalty."""
    return 3 / np.log(penalty) ** 2


def runs(
    path: Callable[[float], ArrayLike] = along_the_path,
    residual: float = 0.4,
    rested: float = 0.01,
    apart: float = 1.0,
    joint: float = 1.0,
    start: float = 1.0,
) -> Datasets:
    """Return the runs of the experiment: without and with penalties, and as published.

    Args:
        path: distance along the steps, by penalty.
        residual: residual of stationarity of the runs with a penalty and a constant step.
        rested: the same for the run with decreasing steps.
        apart: the distance of the published run over that of the run with decreasing steps.
        joint: the distance with separate norms over that with a joint norm.
        start: the distance from a small start, under a penalty, over that from the usual one.
    """
    rules = "exact_normalized_gd", "jointly_normalized_gd"
    penalized = [
        long_run(np.asarray(path(penalty)) * factor, "KQ", rule, penalty, spread=0.05)
        for rule, factor in zip(rules, (1.0, 1 / joint), strict=True)
        for penalty in _PENALTIES
    ]
    published = PUBLISHED_EPSILON
    penalized.append(long_run(2e-3, "KQ", rules[0], published, step="falling", step_size=1.0, spread=0.05))
    penalized.append(long_run(2e-3 * apart, "KQ", penalty=published, spread=0.05))
    penalized.append(long_run(start * np.asarray(path(1e-16)), "KQ", rules[0], 1e-16, scale=0.01, spread=0.05))
    others = [
        *(long_run(6e-3, "KQ", rule) for rule in rules),
        long_run(0.5, "KQ"),
        long_run(0.3, "KQ", "gd"),
        long_run(1e-2, "KQ", rules[0], scale=0.01),
    ]
    wobble = np.resize([0.9, 1 / 0.9], SEEDS)
    for k, one in enumerate(penalized):
        level = residual if one.attrs["step"] == "constant" else rested
        penalized[k] = one.assign(residual=(("seed",), level * wobble))
    return named([*penalized, *others])


def of_published() -> dict[Verdict, Datasets]:
    """The published run is stationary; oscillates about a stationary point; is elsewhere; or near the threshold."""
    return {
        Verdict.HOLDS: runs(residual=0.02),
        Verdict.CORRECTED: runs(),
        Verdict.FAILS: runs(apart=3.0),
        Verdict.OPEN: runs(residual=0.1),
    }


def of_normalization() -> dict[Verdict, Datasets]:
    """Both normalizations are equally far from the solution; one is farther; or it is undecided."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(joint=2.0), Verdict.OPEN: runs(joint=1.25)}


def of_start() -> dict[Verdict, Datasets]:
    """Both starts end equally far from the solution; one is farther; or it is undecided."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(start=2.0), Verdict.OPEN: runs(start=1.25)}


def of_path() -> dict[Verdict, Datasets]:
    """The distance falls with the penalty; does not change; or falls by about the factor asked for."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs(path=lambda _: 1e-2),
        Verdict.OPEN: runs(path=lambda penalty: along_the_path(penalty) ** (np.log(3) / np.log(30**2 / 8**2))),
    }
