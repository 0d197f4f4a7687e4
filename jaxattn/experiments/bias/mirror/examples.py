"""Hand-built datasets for which the verdicts of the claims on mirror descent are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.experiments.bias.mirror import rates
from jaxattn.experiments.bias.mirror.measure import NORMALIZED, NORMS, PLAIN, norm_of
from jaxattn.study.claims.claim import Datasets, Verdict
from jaxattn.study.settings.schedule import Logarithmically

_SEEDS, _EPOCHS = 40, 1500
# Spread over seeds, with mean 0.
_SPREAD = np.resize([-1.0, 1.0, -0.5, 0.5], _SEEDS)


def run(
    rule: str,
    p: float,
    steps: int,
    ratios: Mapping[str, float] | None = None,
    moving: float = 0.0,
    ahead: float = 0.02,
    slack: float = -1.0,
) -> xarray.Dataset:
    """Return a run with a rule and an exponent.

    Args:
        rule: PLAIN or NORMALIZED.
        p: of the potential.
        steps: of training.
        ratios: mean margin ratios of some norms at the end; 0.6 for the others. If None, 0.99 for its own norm.
        moving: by how much the ratios change per decade of steps.
        ahead: the correlation with its own solution minus the others.
        slack: the exponent of log k in the divergence over the paper's bound.
    """
    own, snapshots = norm_of(p), np.array(Logarithmically(8)(steps))
    ends = np.array([({own: 0.99} if ratios is None else ratios).get(norm, 0.6) for norm in NORMS])
    of_seeds = 1 - (1 - ends) * (1 + 0.1 * _SPREAD)[:, None]
    along = of_seeds[:, :, None] + moving * np.log10(np.maximum(snapshots, 1) / snapshots[-1])
    less = np.array([0.0 if norm == own else ahead for norm in NORMS])
    correlation = 0.9 - less * (1 + 0.1 * _SPREAD[:, None]) + 0.002 * _SPREAD[:, None] * (less != 0)
    late = np.maximum(snapshots, 100)
    divergence = 0.1 * rates.bound(late, p) * np.log(late) ** (slack + 0.2 * _SPREAD[:, None])
    counts = {"attempted": _SEEDS, "kept": _SEEDS, "diverged": 0, "infeasible": 0, "unsolved": 0}
    said = {"rule": rule, "p": f"{p:g}", "norm": own, "steps": steps, "run": f"{rule}, p = {p:g}, {steps:,} steps"}
    shape = (_SEEDS, len(NORMS), len(snapshots))
    return xarray.Dataset(
        {
            "correlation": (("seed", "norm", "snapshot"), np.broadcast_to(correlation[:, :, None], shape).copy()),
            "margin_ratio": (("seed", "norm", "snapshot"), along),
            "divergence": (("seed", "snapshot"), divergence),
            "probability": (("seed", "snapshot"), np.full((_SEEDS, len(snapshots)), 0.9999)),
        },
        {"seed": np.arange(_SEEDS), "norm": np.array(NORMS, object), "snapshot": snapshots},
        {**counts, **said},
    )


def named(*runs: xarray.Dataset) -> Datasets:
    """Return runs by their names."""
    return {one.attrs["run"]: one for one in runs}


def of_direction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed; another one; or the run still moves."""

    def normalized(prediction: Prediction, ratios: Mapping[str, float], **changes: Any) -> xarray.Dataset:
        return run(NORMALIZED, float(prediction.row["p"]), 20_000, ratios, **changes)

    return made.of_prediction(prediction, normalized)


def of_nearest(p: float) -> dict[Verdict, Datasets]:
    """Its own solution is nearest after the epochs; only after more steps; never; or it is undecided."""

    def runs(epochs: float, later: float) -> Datasets:
        return named(run(PLAIN, p, _EPOCHS, ahead=epochs), run(PLAIN, p, rates.LONG, ahead=later))

    return {
        Verdict.HOLDS: runs(0.02, 0.02),
        Verdict.CORRECTED: runs(-0.02, 0.02),
        Verdict.FAILS: runs(-0.02, -0.02),
        Verdict.OPEN: runs(1e-5, 0.02),
    }


def of_rate(p: float) -> dict[Verdict, Datasets]:
    """The divergence falls faster than the bound; more slowly; or about as fast."""

    def runs(slack: float) -> Datasets:
        return named(run(PLAIN, p, rates.LONG, slack=slack))

    return {Verdict.HOLDS: runs(-1.0), Verdict.FAILS: runs(0.3), Verdict.OPEN: runs(0.0)}
