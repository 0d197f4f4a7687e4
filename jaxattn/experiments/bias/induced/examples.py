"""Hand-built datasets for which the verdicts of the claims on induced norms are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from jaxattn.bias.verdict import last_decade
from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.induced.measure import NORMS
from jaxattn.experiments.bias.induced.predictions import PREDICTIONS
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.study.claims.claim import Datasets, Verdict


def run(prediction: Prediction, ratios: Mapping[str, float], **changes: Any) -> xarray.Dataset:
    """Return the run that a prediction is about, with these final mean margin ratios.

    Args:
        prediction: whose run.
        ratios: of some norms.
        changes: of `made.run`.
    """
    one = made.run(prediction.name, ratios, dict(prediction.row) | {"variant": ""}, norms=NORMS, **changes)
    return one.isel(snapshot=np.flatnonzero(last_decade(one["snapshot"].values)[0]))


def of_prediction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed; none is, and nothing moves; or the ratios still move."""
    return made.of_prediction(prediction, run)


def all_runs() -> Datasets:
    """Return all runs with a prediction, each as predicted."""
    return {one.name: run(one, {one.norm: 0.99}) for one in PREDICTIONS}
