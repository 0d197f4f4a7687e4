"""Hand-built datasets for which the verdicts of the claims on variants are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray

from jaxattn import bias
from jaxattn.experiments.bias import made
from jaxattn.experiments.bias.judging import Prediction
from jaxattn.experiments.bias.variants.runs import OWN
from jaxattn.study.claims.claim import Datasets, Verdict


def run(prediction: Prediction, ratios: Mapping[str, float], **changes: Any) -> xarray.Dataset:
    """Return the run that a prediction is about, with these final mean margin ratios.

    Args:
        prediction: whose run.
        ratios: of some norms, in the problem that the prediction is about.
        changes: of `made.run`.
    """
    row = {name: value for name, value in prediction.row.items() if name != "about"}
    about = prediction.row["about"]
    one = made.run(prediction.name, ratios, row | {"other": "" if about == OWN else about}, norms=bias.NORMS, **changes)
    if about == OWN:
        return one
    # The other problem is obeyed, or not; its own is not.
    return one.assign(other=one["margin_ratio"], margin_ratio=0.5 * one["margin_ratio"])


def of_prediction(prediction: Prediction) -> dict[Verdict, Datasets]:
    """The predicted norm is obeyed; none is, and nothing moves; or the ratios still move."""
    return made.of_prediction(prediction, run)


def runs(predictions: tuple[Prediction, ...]) -> Datasets:
    """Return the runs of some predictions, each as predicted in its own problem and in the other."""
    found: dict[str, xarray.Dataset] = {}
    for prediction in predictions:
        one = run(prediction, {prediction.norm: 0.99})
        name = ", ".join(value for key, value in prediction.row.items() if key != "about" and value)
        known = found.get(name)
        if known is None:
            found[name] = one.assign_attrs(run=name)
        elif "other" in one:
            found[name] = known.assign(other=one["other"]).assign_attrs(other=one.attrs["other"])
    return found
