"""Which norm's max-margin problem steepest descent on (K, Q) obeys, compared with the induced norm."""

from __future__ import annotations

from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.induced import examples
from jaxattn.experiments.bias.induced.predictions import PREDICTIONS
from jaxattn.experiments.bias.ratios import summarize

__all__ = ["CLAIMS", "summarize"]

CLAIMS = judging.claims("atlas-induced", PREDICTIONS, examples.of_prediction)
