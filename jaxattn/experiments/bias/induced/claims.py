"""Which norm's max-margin problem steepest descent on (K, Q) obeys, held against the norm that is induced."""

from __future__ import annotations

from functools import partial

from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.induced import examples
from jaxattn.experiments.bias.induced.predictions import PREDICTIONS
from jaxattn.experiments.bias.ratios import summarize
from jaxattn.study.claims import Claim

__all__ = ["CLAIMS", "summarize"]

CLAIMS = tuple(
    Claim(
        f"atlas-induced:{prediction.name}",
        prediction.source,
        prediction.statement,
        partial(judging.judge, prediction),
        partial(examples.of_prediction, prediction),
    )
    for prediction in PREDICTIONS
)
