"""Bad input to training, optimizers, noise and penalties is one error that names it."""

import inspect
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import data, descent, language, models, svm
from jaxattn.attention import Spanned
from jaxattn.descent import curvature, gradients, stepping
from tests import instances
from tests.descent.cases import KEY, MODELS, SCALE_FREE
from tests.instances import d, n

PROBLEM, W = instances.problem(), instances.free()
ZERO, FALLING = jnp.zeros(PROBLEM.Z.shape), descent.falling(SCALE_FREE)


def train(weights: Any = W, **given: Any) -> Any:
    return descent.train(weights, PROBLEM, **{"steps": 5, **given})


def own(update: Any) -> optax.GradientTransformation:
    return optax.GradientTransformation(optax.init_empty_state, update)


POSITIVE, AT_LEAST_ZERO = "expected a positive finite number", "expected a finite number of at least 0"
SCHEDULE, POWER = "expected a positive number or a schedule", "expected a number above 0 and at most 1"
NOT_POSITIVE, NEGATIVE = (0.0, -0.1, np.nan, np.inf), (-1e-16, np.nan, np.inf)
# A call with one value, what is expected, and values out of range.
NUMBERS = [
    (descent.gd, f"step_size: {POSITIVE}", NOT_POSITIVE),
    (descent.normalized_gd, f"step_size: {POSITIVE}", NOT_POSITIVE),
    (lambda x: descent.normalized_gd(0.1, floor=x), f"floor: {AT_LEAST_ZERO}", NEGATIVE),
    (lambda x: descent.normalized_gd(0.1, penalty=x), f"penalty: {AT_LEAST_ZERO}", NEGATIVE),
    (lambda x: descent.long_first_gd(0.1, first=x), f"first: {POSITIVE}", (-1.0,)),
    (lambda p: descent.lp_gd(p, 0.1), "p: expected a number above 1", (1.0, np.inf)),
    (lambda p: descent.mirror(p, 0.1), "p: expected a number above 1", (1.0, np.inf, np.nan)),
    (lambda x: descent.lp_gd(3.0, x), f"step: {POSITIVE}", (0.0, np.nan)),
    (descent.falling_step, f"step: {POSITIVE}", (0.0,)),
    (lambda x: descent.steepest("max", x), f"step: {SCHEDULE}", (0.0, np.nan)),
    (lambda x: descent.mirror(3.0, x), f"step: {SCHEDULE}", (0.0,)),
    (lambda x: descent.falling(SCALE_FREE, x), f"power: {POWER}", (0.0, -1.0, 1.5, np.nan)),
    (lambda x: descent.falling_step(0.1, x), f"power: {POWER}", (2.0,)),
    (lambda x: descent.momentum(optax.sign_sgd(0.1), x), "decay: expected a number .* below 1", (1.0,)),
    (lambda x: descent.momentum(optax.sign_sgd(0.1), x), "decay: expected a number of at least 0 and below 1", (-0.1,)),
    (descent.minibatches, "size: expected at least 1", (0,)),
    (
        lambda size: train(noise=descent.minibatches(size), key=KEY),
        "size: expected a minibatch of at most the 3 inputs",
        (n + 1,),
    ),
    (descent.dropout, "rate: expected a number of at least 0 and below 1", (1.0,)),
    (descent.gumbel, f"tau: {POSITIVE}", (0.0,)),
    (descent.entropy, "weight: expected a finite number", (np.nan, -np.inf)),
    (lambda x: curvature.largest(jnp.sum, jnp.ones(2), KEY, x), "iterations: expected at least 1", (0,)),
    (lambda x: train(steps=x), "steps: expected at least 1", (0, -3)),
    (lambda x: train(record_every=x), "record_every: expected at least 1", (0,)),
    # Without the run-time checks of annotations, which users do not have.
    (lambda x: inspect.unwrap(stepping.checked)(5, 1, x), "snapshots: expected whole numbers", ((1.5,), (1, np.nan))),
    (
        lambda x: train(snapshots=x),
        r"snapshots: expected increasing steps within 0\.\.5",
        ((6,), (-1, 2), (2, 2), (3, 1)),
    ),
    (lambda x: train(penalty=x), r"penalty: expected a function penalty\(log_probabilities\)", (0.1,)),
    (lambda x: train(noise=x, key=KEY), r"noise: expected a function noise\(key, n, T\)", (0.1,)),
    (lambda norm: descent.steepest(norm, 0.1), "norm: expected one of .*", ("polar",)),
]


class Unhashable:
    """A head that compares by content, without a hash."""

    def __eq__(self, other):
        return isinstance(other, Unhashable)

    def __call__(self, x, v):  # noqa: D102
        return jnp.vdot(v, x)


@dataclass
class Thawed:
    """A loss that can be changed."""

    scale: float

    def __call__(self, margin):  # noqa: D102
        return jnp.exp(-self.scale * margin)


@pytest.mark.parametrize(
    ("call", "message", "value"), [(*case, value) for *case, values in NUMBERS for value in values]
)
def test_a_value_out_of_range_is_named(call, message, value):
    with pytest.raises(ValueError, match=rf"^{message}.*{re.escape(str(value))}"):
        call(value)


SPANNED = "^optimizer: expected one that moves Spanned weights along their gradient"
TEXT = jax.jit(partial(data.language, m=3, n=4, d=6, V=5, entropy=0.2))
TWO, TWO_HEADS = MODELS["two heads"]()[0], models.summed(2)
BOUNDED = svm.nuclear_of_rank(2)
STARTS = "^weights: expected a start for each of 3 problems, found arrays of shape "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train(jnp.zeros((d, d + 1))), r"^W: expected shape \(5, 5\)"),
        (lambda: train(W.astype(np.float32)), r"^W: expected dtype float64"),
        (lambda: descent.train_batch(jnp.zeros((2, d, 6)), instances.problems(2)), r"^W: expected shape \(5, 5\)"),
        (lambda: descent.train_batch(jnp.zeros((2, d, d)), instances.problems(3)), STARTS + r"\(2, 5, 5\)$"),
        (lambda: descent.train_batch(jnp.zeros((d, d)), instances.problems(3)), STARTS + r"\(5, 5\)$"),
        (lambda: train(Spanned(ZERO, ZERO + 1)), "Z: expected the problem's queries, found 15 other entries"),
        (
            lambda: train(Spanned(ZERO[:2], PROBLEM.Z)),
            r"B: expected shape \(3, 5\) for tokens of d = 5, found \(2, 5\)",
        ),
        (lambda: train(Spanned(ZERO, PROBLEM.Z), optimizer=optax.adam(0.1)), SPANNED),
        (lambda: train(Spanned(ZERO, PROBLEM.Z), optimizer=FALLING), SPANNED),
        (
            lambda: language.train(TEXT(KEY), optimizer=FALLING),
            "^optimizer: expected one that moves W along its gradient",
        ),
        (lambda: descent.falling(optax.adam(0.1)), "^optimizer: expected one that moves along the gradient, .* found "),
        (lambda: descent.relative(FALLING), "^optimizer: expected one that moves along the gradient"),
        (
            lambda: train(TWO, model=TWO_HEADS, optimizer=descent.scale_free(optax.adam(0.1))),
            "^optimizer: expected one that is blind to the gradient's scale",
        ),
        (lambda: descent.steepest(BOUNDED, 0.1), "^norm: .* without a bound on the rank, found 'nuclear of rank 2'"),
        (
            lambda: train(noise=descent.dropout(0.1)),
            "key: expected one for the noise of training or of its optimizer, .*found None",
        ),
        (lambda: train(head=Unhashable()), "head: expected a function, or a frozen dataclass.*unhashable"),
        (lambda: train(loss=Thawed(1.0)), "loss: expected a function, or a frozen dataclass.*unhashable"),
        (
            lambda: train(optimizer=optax.GradientTransformation(cast(Any, Unhashable()), optax.sgd(0.1).update)),
            "optimizer: expected a function, or a frozen dataclass.*unhashable",
        ),
        (
            lambda: train(optimizer=own(lambda g, s, w: -g)),
            r"^optimizer: expected update to return a pair \(steps, state\)",
        ),
        (
            lambda: train(optimizer=own(lambda g, s, w: (g[0], s))),
            r"^optimizer: expected update to return steps like the weights, of shapes \[\(5, 5\)\], found \[\(5,\)\]",
        ),
        (
            lambda: train(optimizer=own(lambda g, s, w: (g, g))),
            r"^optimizer: expected update to return a state like that of init, of shapes \[\], found \[\(5, 5\)\]",
        ),
        (
            lambda: train(optimizer=own(lambda g, s: (g, s))),
            r"^optimizer.update: should be optimizer.update\(gradient, state, weights\), found <lambda>\(g, s\)",
        ),
        (
            lambda: descent.train(
                instances.single(W), instances.single(PROBLEM), optimizer=optax.adam(np.float64(0.1)), steps=5
            ),
            "^optimizer: expected steps of float32 as the weights have, found float64",
        ),
        (
            lambda: train(penalty=jnp.sum),
            r"^penalty: expected one derivative for each probability, \(3, 4\), found \(\)",
        ),
        (
            lambda: train(noise=lambda key, n, T: 1.0, key=KEY),
            "^noise: expected a law that returns a descent.Draw or descent.Sample, found float",
        ),
        (lambda: train(key=KEY), "noise: expected a law such as descent.dropout.* for the key, found full_batch"),
        (lambda: train(noise=descent.dropout(0.1), key=jax.random.split(KEY)), r"key: expected one .*shape \(2,\)"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("schedule", [descent.falling, descent.relative])
def test_a_scheduled_optimizer_is_given_the_gradient_of_its_own(schedule):
    exact = descent.exact_normalized_gd(0.3, penalty=0.01)
    expected = ((descent.gd(0.1), gradients.gradient), (SCALE_FREE, gradients.direction), (exact, gradients.exact))
    for optimizer, rule in expected:
        assert gradients.rule_of(schedule(optimizer)) is rule
