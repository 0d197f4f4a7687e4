"""Attention in causal language modelling: texts, their selection problems (one per prefix), training and SVMs.

Based on "Attention as an SVM in causal language modelling" (withdrawn ICLR 2024 submission), formulas corrected.
"""

from jaxattn.language.choices import Candidates, Choices, compact, followers, of_text, prefix, vocabulary
from jaxattn.language.law import Markov
from jaxattn.language.model import counted, linear, logits, margins, risk, softmax, squared_risk, table
from jaxattn.language.scores import Head, close_scores, dual_head, head_scores
from jaxattn.language.separation import constraints, finite_constraints, set_constraints, soft
from jaxattn.language.slopes import PairSlope, input_slopes, pair_slopes
from jaxattn.language.smoothness import cross_entropy_bound, score_bound, squared_bound
from jaxattn.language.training import TextRun, train, train_batch, weights

__all__ = [
    "Candidates",
    "Choices",
    "Head",
    "Markov",
    "PairSlope",
    "TextRun",
    "close_scores",
    "compact",
    "constraints",
    "counted",
    "cross_entropy_bound",
    "dual_head",
    "finite_constraints",
    "followers",
    "head_scores",
    "input_slopes",
    "linear",
    "logits",
    "margins",
    "of_text",
    "pair_slopes",
    "prefix",
    "risk",
    "score_bound",
    "set_constraints",
    "soft",
    "softmax",
    "squared_bound",
    "squared_risk",
    "table",
    "train",
    "train_batch",
    "vocabulary",
    "weights",
]
