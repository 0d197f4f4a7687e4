"""Hand-built flows for which the verdicts of the claims are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray

from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.study.claims.claim import Datasets, Verdict

_NORMS = ("frobenius", "nuclear")


def runs(start: str, ratios: Mapping[str, float], moving: float = 0.0, error: float = 0.0) -> Datasets:
    """Return a start followed with short steps and with steps twice as long.

    Args:
        start: its name.
        ratios: mean margin ratios at the end, by norm.
        moving: by how much the ratios change per decade of steps.
        error: by how much the ratios for long steps are smaller.
    """
    short = _run(start, 0.5, ratios, moving)
    long = _run(start, 1.0, {norm: ratio - error for norm, ratio in ratios.items()}, moving)
    return {str(one.attrs["run"]): one for one in (short, long)}


def _run(start: str, step: float, ratios: Mapping[str, float], moving: float) -> xarray.Dataset:
    one = made.run(f"{start}, h = {step:g}", ratios, {"start": start}, moving=moving, norms=_NORMS)
    path = 2 * step * np.sqrt(one["snapshot"].values)
    return one.assign(
        cosine=one["margin_ratio"],
        size=(("seed", "snapshot"), np.tile(path**2, (made.SEEDS, 1))),
        optimal=(("seed",), np.ones(made.SEEDS)),
    ).assign_attrs(step=step)


def of_prediction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed; none is, and nothing moves; or the ratios still move."""
    start, norm = prediction.row["start"], prediction.norm
    return {
        Verdict.HOLDS: runs(start, {norm: 0.99}),
        Verdict.FAILS: runs(start, {norm: 0.9}),
        Verdict.OPEN: runs(start, {}, moving=0.05),
    }
