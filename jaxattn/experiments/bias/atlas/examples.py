"""Hand-built datasets for which the verdicts of the claims of the atlas are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS, Prediction
from jaxattn.study.claims.claim import Datasets, Verdict


def run(prediction: Prediction, ratios: Mapping[str, float], **changes: Any) -> xarray.Dataset:
    """Return the run that a prediction is about, with these final mean margin ratios.

    Args:
        prediction: whose run.
        ratios: of some norms.
        changes: of `made.run`.
    """
    return made.run(prediction.name, ratios, prediction.row | {"variant": ""}, **changes)


def of_prediction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed, or none; none is, and nothing moves; or the ratios still move."""
    return made.of_prediction(prediction, run)


def atlas() -> Datasets:
    """Return all runs with a prediction, each as predicted."""
    return {one.name: run(one, {one.norm: 0.99}) for one in PREDICTIONS}
