"""Malformed arguments of what is asked of runs, each with what its one ValueError must say (a regular expression)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxattn import attention as annotated_attention
from jaxattn import bias as annotated_bias
from jaxattn import models as annotated_models
from jaxattn.bias.checkpoints import as_run
from tests import instances
from tests.instances import d

# Called with what their annotations forbid.
attention: Any = annotated_attention
bias: Any = annotated_bias
models: Any = annotated_models

PROBLEMS = instances.problems(2)
W = np.ones((2, 2, d, d))
RUN, FACTORS = as_run(W, (1, 2)), as_run(attention.Factored(W, W), (1, 2))
NO_RUN = "run: expected the result of descent.train_batch, found "
NO_KEY = "key: expected one random key, as jax.random.key.0. gives it, found "

RUNS = {
    "weights in place of a run": (lambda: bias.rank(W[:, 0], PROBLEMS), NO_RUN + "ndarray"),
    "weights that end somewhere": (lambda: bias.finite(W[:, 0], PROBLEMS), NO_RUN + "ndarray"),
    "weights that grow": (lambda: bias.growth(W[:, 0]), NO_RUN + "ndarray"),
    "one run that grows": (
        lambda: bias.growth(instances.lane(RUN, 0)),
        "run: expected one of a batch, with two snapshots",
    ),
    "problems in place of a run of factors": (
        lambda: bias.rank_factors(PROBLEMS, FACTORS, "max", "max"),
        "run: expected one that trained attention.Factored",
    ),
    "a number as a key": (lambda: bias.rank(RUN, PROBLEMS, key=0), NO_KEY + "0"),
    "a norm as a key": (lambda: bias.rank(RUN, PROBLEMS, ["max"], "nuclear"), NO_KEY + "'nuclear'"),
    "two keys": (lambda: bias.rank(RUN, PROBLEMS, key=jax.random.split(jax.random.key(0))), NO_KEY + r"shape \(2,\)"),
    "a number as a key of a family": (lambda: bias.infer(RUN, PROBLEMS, key=0), NO_KEY + "0"),
    "a number as a key of a product": (lambda: bias.rank_factors(FACTORS, PROBLEMS, "max", "max", 0), NO_KEY + "0"),
    "a number as a key of KKT points": (lambda: bias.kkt(RUN, PROBLEMS, "max", 0), NO_KEY + "0"),
    "no list of norms": (lambda: bias.rank(RUN, PROBLEMS, None), "norms: expected a list of norms, found None"),
    "a trace where there is none": (
        lambda: bias.finite(RUN, PROBLEMS, ["trace"]),
        "norm: expected one of .*found 'trace'",
    ),
    "a number as a key of heads": (lambda: bias.heads(W, W, W, key=0), NO_KEY + "0"),
    "W_Q alone as the start of heads": (
        lambda: bias.heads(W[0], np.ones((1, d, d)), np.ones((1, d, d)), start=np.ones((1, d, d))),
        r"start: expected the pair \(W_Q, W_K\) before training, found ndarray of length 1",
    ),
    "heads of a function": (lambda: models.summed(2, model=print), "model: expected models.TransformedInputs .*print"),
}
