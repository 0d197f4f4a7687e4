"""Which norm's max-margin problem each row of the atlas obeys, compared with the predictions."""

from __future__ import annotations

from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.atlas import examples
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.ratios import summarize

__all__ = ["CLAIMS", "summarize"]

CLAIMS = judging.claims("atlas", PREDICTIONS, examples.of_prediction)
