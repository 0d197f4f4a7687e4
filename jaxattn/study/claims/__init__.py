"""Claims of the papers, as values that are judged from measured numbers and their intervals."""

# ruff: noqa: F401

from jaxattn.statistics import LEAST_SEEDS
from jaxattn.study.claims.claim import (
    DRAWN,
    TRAINED,
    Claim,
    Datasets,
    Judgement,
    Kind,
    Needs,
    Runs,
    Setting,
    Source,
    Verdict,
    claim,
    family,
    line,
)
from jaxattn.study.claims.counts import DOUBTED, EXCLUDED, LEAST_DRAWN, LEAST_STEPS, counts_of, doubts, too_few, total
from jaxattn.study.claims.criteria import Agreement, Criterion, Number, Outcome, above, agrees, below, between, together
from jaxattn.study.claims.registry import Experiment, Judgements, experiment, folders, judged, not_a_number, registry
