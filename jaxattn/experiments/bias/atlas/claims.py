"""Which norm's max-margin problem each row of the atlas obeys, held against what is predicted."""

from __future__ import annotations

from functools import partial

from jaxattn.experiments.bias import judging
from jaxattn.experiments.bias.atlas import examples
from jaxattn.experiments.bias.atlas.predictions import PREDICTIONS
from jaxattn.experiments.bias.ratios import summarize
from jaxattn.study.claims import Claim

__all__ = ["CLAIMS", "summarize"]

CLAIMS = tuple(
    Claim(
        f"atlas:{prediction.name}",
        prediction.source,
        prediction.statement,
        partial(judging.judge, prediction),
        partial(examples.of_prediction, prediction),
    )
    for prediction in PREDICTIONS
)
