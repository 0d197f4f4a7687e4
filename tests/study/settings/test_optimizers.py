"""Any optax transformation gets the gradient that suits it."""

from typing import Any, cast

import jax.numpy as jnp
import optax
import pytest

from jaxattn import descent
from jaxattn.study.settings.optimizers import suited
from tests import instances


def own(step, decay):
    """Sign descent on an average of gradients."""

    def update(updates: Any, state: Any, params: Any = None):
        mean = decay * state + (1 - decay) * updates
        return -step * jnp.sign(mean), mean

    return optax.GradientTransformation(lambda params: jnp.zeros_like(cast(Any, params)), update)


@pytest.mark.parametrize(
    "optimizer",
    [
        own(0.01, 0.9),
        optax.adam(0.01, eps=0.0),
        optax.contrib.schedule_free_adamw(0.01, eps=0.0),  # It has NaN among its numbers.
        pytest.param(optax.lamb(0.01, eps=0.0), marks=pytest.mark.slow),
        pytest.param(optax.adafactor(0.01, eps=0.0), marks=pytest.mark.slow),
        pytest.param(optax.contrib.muon(0.01, eps=0.0), marks=pytest.mark.slow),
    ],
)
def test_a_scale_free_one_gets_the_direction_and_trains(optimizer):
    found = suited(optimizer)
    assert isinstance(found, descent.ScaleFree)
    run = descent.train(jnp.zeros((5, 5)), instances.problem(), optimizer=found, steps=50)
    assert jnp.isfinite(run.weights).all()
    assert run.loss[-1] < run.loss[0]


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(0.01), optax.contrib.dog(0.1)])
def test_any_other_gets_the_exact_gradient_and_trains(optimizer):
    found = suited(optimizer)
    assert isinstance(found, descent.Exact)
    run = descent.train(jnp.zeros((5, 5)), instances.problem(), optimizer=found, steps=50)
    assert run.loss[-1] < run.loss[0]


def test_the_steps_are_those_of_the_optimizer_itself():
    problem, rule = instances.problem(), optax.sgd(0.5, momentum=0.9)
    rules = (suited(rule), descent.Exact(*rule))
    moved, exact = (descent.train(jnp.zeros((5, 5)), problem, optimizer=one, steps=20) for one in rules)
    instances.assert_close(moved.weights, exact.weights)


def test_what_cannot_be_used_is_named():
    with pytest.raises(ValueError, match="found one that raised ZeroDivisionError"):
        suited(own(0.01, 0.9)._replace(init=lambda params: 1 / 0))
