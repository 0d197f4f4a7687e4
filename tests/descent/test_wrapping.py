"""Optimizers made of others: each goes on where the gradient is below all numbers, or is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import descent
from jaxattn.study.configuration import composition
from jaxattn.study.configuration.names import names_of
from tests import instances

# Rules that do not look at the length of the gradient.
NEVER_STALL = (
    "adam",
    "falling_polar",
    "falling_sign",
    "lion",
    "mirror",
    "momentum",
    "muon",
    "polar",
    "rmsprop",
    "sign",
)


def configured(name: str) -> Any:
    return composition.setting_of(composition.compose([f"optimizer={name}"])).optimizer  # pyright: ignore


@pytest.mark.slow
def test_every_configuration_is_an_optimizer():
    assert set(NEVER_STALL) < set(names_of("optimizer"))
    for name in names_of("optimizer"):
        assert hasattr(configured(name), "update"), name


@pytest.mark.parametrize("name", NEVER_STALL)
def test_the_command_line_takes_it(name):
    # As `jaxattn train` does before it trains: composed, traced, and its blindness to the scale tried out.
    composition.check([f"optimizer={name}", "weights=factored", "data.n=3", "data.T=4", "data.d=5", "steps=20"])


def test_a_step_can_be_a_schedule_of_optax_on_the_command_line():
    decay = "{_target_:optax.exponential_decay,init_value:0.1,transition_steps:10,decay_rate:0.5}"
    setting: Any = composition.setting_of(composition.compose(["optimizer=sign", f"optimizer.step={decay}"]))
    problem, start = instances.problem(), jnp.zeros((5, 5))
    run: Any = descent.train(start, problem, optimizer=setting.optimizer, steps=11, snapshots=(1, 10, 11))
    # Optax reckons them in single precision.
    np.testing.assert_allclose(jnp.abs(run.snapshots[0]).max(), 0.1, rtol=1e-6)
    np.testing.assert_allclose(jnp.abs(run.snapshots[2] - run.snapshots[1]).max(), 0.05, rtol=1e-6)


@pytest.mark.parametrize("kind", ["free", pytest.param("factored", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NEVER_STALL)
def test_a_configured_rule_goes_on_for_thousands_of_steps(name, kind):
    """In the last thousand of 4,000 steps, where the gradient of a naive form is rounding, W still grows."""
    start = jnp.zeros((5, 5)) if kind == "free" else instances.factored(m=5)
    rule = configured(name)
    assert isinstance(rule, descent.ScaleFree)
    given = {"optimizer": rule, "steps": 4000, "snapshots": (3000, 4000), "record_every": 1000}
    run: Any = descent.train(start, instances.problem(), **given)
    W = run.snapshots if kind == "free" else run.snapshots.W
    before, after = np.linalg.norm(W, axis=(1, 2))
    assert int(run.stalled) == -1
    assert float(run.probability[-1]) > 0.99
    assert after > (1.005 if name == "adam" else 1.05) * before


@pytest.mark.parametrize("name", NEVER_STALL)
def test_a_configured_rule_keeps_single_precision(name):
    start, problem = jax.tree.map(lambda leaf: leaf.astype(np.float32), (instances.free(), instances.problem()))
    run: Any = descent.train(start, problem, optimizer=configured(name), steps=2)
    assert {leaf.dtype for leaf in (run.weights, run.loss)} == {np.dtype(np.float32)}


def test_scale_free_is_the_optimizer_on_the_direction():
    rule = descent.scale_free(optax.lion(0.01))
    assert isinstance(rule, descent.ScaleFree)
    mine: Any = descent.train(instances.free(), instances.problem(), optimizer=rule, steps=20)
    theirs: Any = descent.train(instances.free(), instances.problem(), optimizer=optax.lion(0.01), steps=20)
    np.testing.assert_allclose(mine.weights, theirs.weights, rtol=1e-12)


def test_momentum_is_that_of_the_gradient_itself():
    """As of the plain gradient by hand, long before it underflows."""
    problem, W = instances.problem(), instances.free()
    rule = descent.momentum(descent.steepest("frobenius", 0.1), decay=0.8)
    run = descent.train(W, problem, optimizer=rule, steps=30)
    normalized: Any = optax.stateless(lambda m, _: -0.1 * jnp.asarray(m) / jnp.linalg.norm(jnp.asarray(m)))
    plain = optax.chain(optax.trace(0.8), normalized)
    theirs = descent.train(W, problem, optimizer=plain, steps=30)
    np.testing.assert_allclose(run.weights, theirs.weights, rtol=1e-10)
    none = descent.train(W, problem, optimizer=descent.momentum(descent.steepest("max", 0.1), decay=0.0), steps=30)
    same = descent.train(W, problem, optimizer=descent.steepest("max", 0.1), steps=30)
    np.testing.assert_array_equal(none.weights, same.weights)


@pytest.mark.parametrize(
    "rule",
    [optax.adam(0.01), optax.sgd(0.1, momentum=0.9), optax.contrib.muon(0.03), optax.yogi(0.01), optax.adafactor(0.01)],
)
def test_a_rule_that_looks_at_the_length_is_refused(rule):
    with pytest.raises(ValueError, match=r"^optimizer: expected one that is blind to the gradient's scale"):
        descent.train(instances.free(), instances.problem(), optimizer=descent.scale_free(rule), steps=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: descent.momentum(optax.sign_sgd(0.1), 1.0), r"^decay: expected a number .* below 1, found 1.0"),
        (lambda: descent.momentum(optax.sign_sgd(0.1), -0.1), r"^decay: expected a finite number of at least 0, "),
        (lambda: descent.falling_step(0.0), r"^step: expected a positive finite number, found 0.0"),
        (lambda: descent.falling_step(0.1, 2.0), r"^power: expected a number above 0 and at most 1, found 2.0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_equal_schedules_are_one_optimizer():
    one, other = (descent.steepest("max", descent.falling_step(0.1)) for _ in range(2))
    assert one is other
    np.testing.assert_allclose(descent.falling_step(0.3)(jnp.arange(3)), [0.3, 0.3 / 2**0.5, 0.3 / 3**0.5], rtol=1e-15)
