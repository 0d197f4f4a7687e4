"""Hand-built datasets for which the verdicts of the claims on several tokens under a ReLU head are known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray

from jaxattn.experiments.several_tokens.descriptions import SOLUTIONS
from jaxattn.experiments.several_tokens.evidence import EXACT
from jaxattn.experiments.several_tokens.multi_token_mlp.published import PUBLISHED
from jaxattn.study.claims.claim import Datasets, Verdict

_DIMENSIONS, _SEEDS, _FEW = (4, 6), 40, 6
# 1 - cos of every run with W_SVMeq, W_mm and W_1token: in the stated order.
_STATED = (0.02, 0.1, 0.15)


def runs(
    changes: Sequence[tuple[int, str, float]] = (),
    every: Sequence[float] = _STATED,
    seeds: int = _SEEDS,
    last: int = 2000,
    predicted: float = 1.1,
    determined: int = 10,
    growth: float = 0.5,
    power: float = 1.5,
    resting: float = 0.0,
) -> Datasets:
    """Return runs of two dimensions at the published distances from each description, with changes.

    Each is made by the published rule, and along the exact gradient direction, for which only the motion is read.

    Args:
        changes: a dimension, a description and its new mean.
        every: means of the runs that the published selection excludes, for W_SVMeq, W_mm and W_1token.
        seeds: kept by the published selection, and as many that it excludes; each differs by a fifth.
        last: number of the last step.
        predicted: factor by which W_SVMeq is farther with the predicted finite part.
        determined: number of runs with a prediction that the selection keeps, and as many that it excludes.
        growth: the exponent p in ||W|| ~ k^p.
        power: the exponent of 1 / ||W|| with which 1 - cos falls.
        resting: share of the seeds whose ||W|| does not grow.
    """
    means = {(d, name): by_d[d] for name, by_d in PUBLISHED.items() for d in _DIMENSIONS}
    means |= {(d, name): mean for d, name, mean in changes}
    factors = 1 + 0.2 * np.resize([1.0, -1.0], seeds)
    whole = np.concatenate([np.arange(determined), seeds + np.arange(determined)])
    steps, made = np.array([100, last]), {}
    exponents = np.where(np.resize(np.arange(20), 2 * seeds) < 20 * resting, 0.01, growth)
    grown = (steps / last) ** exponents[:, None]
    for d, rule in product(_DIMENSIONS, ("", EXACT)):
        run = f"d = {d}{rule}"
        selected = [*(means[d, name] for name in PUBLISHED), 0.9]
        off = np.concatenate([np.outer(factors, selected), np.outer(factors, [*every, 0.9])])
        published = np.arange(2 * seeds) < seeds
        made[run] = xarray.Dataset(
            {
                "off": (("seed", "solution", "snapshot"), off[:, :, None] / grown[:, None] ** power),
                "size": (("seed", "snapshot"), np.where(published, 50.0, 20.0)[:, None] * grown),
                "masked": (("seed",), np.full(2 * seeds, 1e-8)),
                "several": (("seed",), np.ones(2 * seeds, bool)),
                "published": (("seed",), published),
                "every": (("seed",), ~published | (np.arange(2 * seeds) == 0)),
                "whole_seed": (("whole",), whole),
                "foretold": (("whole",), predicted * off[whole, 0]),
                "fitted": (("whole",), off[whole, 0]),
            },
            {"seed": np.arange(2 * seeds), "solution": np.array(SOLUTIONS, object), "snapshot": steps},
            {"run": run, "d": d, "attempted": seeds + 5, "kept": seeds, "ambiguous": 5}
            | {"every_attempted": seeds + 6, "every_kept": seeds + 1, "every_finite": 5},
        )
    return made


def of_selected() -> dict[Verdict, Datasets]:
    """The stated order; W_1token nearer than W_mm; or few runs with a determined finite part."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs([(6, "W_1token", 0.03)]),
        Verdict.OPEN: runs(determined=2),
    }


def of_numbers() -> dict[Verdict, Datasets]:
    """The published means; a different one in the same order; or few runs."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.FAILS: runs([(4, "W_mm", 0.05)]),
        Verdict.OPEN: runs(seeds=_FEW, determined=_FEW),
    }


def of_every() -> dict[Verdict, Datasets]:
    """The stated order; W_1token before W_mm; W_mm before the predicted W_SVMeq; or few predicted runs."""
    return {
        Verdict.HOLDS: runs(),
        Verdict.CORRECTED: runs(every=(0.02, 0.2, 0.15)),
        Verdict.FAILS: runs(predicted=6.0),
        Verdict.OPEN: runs(determined=2),
    }


def of_norm() -> dict[Verdict, Datasets]:
    """The norm grows; it does not; or there are few runs."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(growth=0.01), Verdict.OPEN: runs(seeds=_FEW, determined=_FEW)}


def of_direction() -> dict[Verdict, Datasets]:
    """The distance falls faster than 1 / ||W||; slower; or there are few runs."""
    return {Verdict.HOLDS: runs(), Verdict.FAILS: runs(power=0.5), Verdict.OPEN: runs(seeds=_FEW, determined=_FEW)}
