"""Numbers of optimizers, and arrays of other values, as data: traced, shared by programs, one for each seed."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import bias, descent, heads, losses, models
from jaxattn.descent.hyperparameters import taken_out
from tests import instances
from tests.descent.cases import KEY, STEPS
from tests.instances import assert_close, d

RATES = jnp.array([0.1, 0.2, 0.3])


def train(**given):
    return descent.train(instances.free(), instances.problem(), steps=STEPS, **given)


@dataclass(frozen=True)
class Scaled:
    """A loss of its own, with an array."""

    beta: Any

    def __call__(self, margin):  # noqa: D102
        return losses.logistic(self.beta * margin)


@dataclass(frozen=True)
class Weighted:
    """A head of its own, with an array."""

    weights: Any

    def __call__(self, x, v):  # noqa: D102
        return jnp.vdot(v, self.weights * x)


@dataclass(frozen=True)
class Added:
    """Logits of its own, with an array."""

    matrix: Any

    def __call__(self, W, problem):  # noqa: D102
        return jnp.einsum("ntd,de,ne->nt", problem.X, W + self.matrix, problem.Z)


def powered(power, margin):
    return jnp.exp(-power * margin)


# What a number becomes part of.
WITH = {
    "gd": lambda number: {"optimizer": descent.gd(number)},
    "floor and penalty": lambda number: {"optimizer": descent.normalized_gd(0.1, number, number)},
    "long first": lambda number: {"optimizer": descent.long_first_gd(number, 10 * number)},
    "steepest, falling": lambda number: {"optimizer": descent.steepest("max", descent.falling_step(number, number))},
    "mirror": lambda number: {"optimizer": descent.mirror(1 + number, number)},
    "momentum": lambda number: {"optimizer": descent.momentum(descent.steepest("max", number), number)},
    "adam": lambda number: {"optimizer": optax.adam(number, b1=number)},
    "adam, scale-free": lambda number: {"optimizer": descent.scale_free(optax.adam(number, b2=number, eps=0.0))},
    "schedule": lambda number: {"optimizer": optax.sgd(optax.cosine_decay_schedule(number, 5), momentum=number)},
    "temperature, falling": lambda number: {
        "model": models.temperature(number),
        "optimizer": descent.falling(descent.gd(number), number),
    },
    "quadratic, entropy, dropout": lambda number: {
        "head": heads.Quadratic(number),
        "penalty": descent.entropy(number),
        "noise": descent.dropout(number),
        "key": KEY,
    },
    "partial, gumbel, spectral": lambda number: {
        "loss": partial(powered, number),
        "noise": descent.gumbel(number),
        "key": KEY,
        "optimizer": descent.steepest("spectral", number),
    },
    "all of its own": lambda number: {
        "loss": Scaled(number),
        "head": Weighted(number * jnp.arange(d)),
        "model": Added(number * jnp.eye(d)),
    },
}


@pytest.mark.parametrize("name", WITH)
def test_a_traced_number_is_a_number(name):
    together = jax.vmap(lambda number: train(**WITH[name](number)))(RATES)
    for lane, number in enumerate(RATES[:2]):
        alone = train(**WITH[name](float(number)))
        assert_close((together.weights[lane], together.loss[lane]), (alone.weights, alone.loss), rtol=1e-9)
    # Each lane has its own.
    assert not np.allclose(together.weights[0], together.weights[1])
    # The rule says what gradient the optimizer gets, and holds no traced value.
    optimizer = WITH[name](0.1).get("optimizer")
    assert together.rule is not None
    assert isinstance(together.rule.optimizer, descent.ScaleFree) == isinstance(optimizer, descent.ScaleFree)
    assert hash(together.rule) == hash(jax.eval_shape(lambda: together).rule)


def test_under_jit_too():
    for name in ("gd", "adam", "temperature, falling"):
        jitted = jax.jit(lambda number, name=name: train(**WITH[name](number)).loss)(0.2)
        assert_close(jitted, train(**WITH[name](0.2)).loss, rtol=1e-9)


def counted():
    """A loss and the list of its traces."""
    traced = []

    def loss(margin):
        traced.append(margin)
        return losses.logistic(margin)

    return loss, traced


@pytest.mark.parametrize(
    "make",
    [
        partial(descent.steepest, "max"),
        partial(descent.mirror, 3.0),
        lambda rate: descent.steepest("max", descent.falling_step(rate)),
        lambda rate: descent.momentum(descent.steepest("frobenius", rate), rate),
        lambda rate: optax.adamw(rate, b1=rate, weight_decay=rate),
        lambda rate: descent.scale_free(optax.adam(rate, eps=0.0)),
        lambda rate: optax.chain(optax.clip_by_global_norm(rate), optax.sgd(optax.linear_schedule(rate, 0.0, 5))),
    ],
)
def test_other_numbers_compile_nothing(make):
    loss, traced = counted()
    first = train(optimizer=make(0.1), loss=loss)
    once = len(traced)
    second = train(optimizer=make(0.3), loss=loss)
    assert once == len(traced) > 0
    assert not np.allclose(first.weights, second.weights)


def relu(updates, state, params=None):
    # Its text has the address of a function that is made anew each time.
    return jax.tree.map(jax.nn.relu, updates), state


def test_the_same_optimizer_compiles_once():
    loss, traced = counted()
    optimizer = optax.GradientTransformation(lambda params: optax.EmptyState(), relu)
    train(optimizer=optimizer, loss=loss)
    once = len(traced)
    train(optimizer=optimizer, loss=loss)
    assert once == len(traced) > 0


def test_an_array_in_an_update_is_part_of_its_program():
    """Two programs of one text, whose arrays differ, are two."""

    def update(updates, state, params=None, scale=None):
        return jax.jit(lambda G: G * scale)(updates), state

    W = jnp.ones(2)
    programs = [
        taken_out(partial(update, scale=np.array(scale)), W, (), W)[0] for scale in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0])
    ]
    assert programs[0] == programs[1] != programs[2]
    assert hash(programs[0]) == hash(programs[1])


def test_a_value_traced_around_a_function_is_refused():
    with pytest.raises(ValueError, match="traced values as arguments"):
        jax.vmap(lambda beta: train(loss=lambda margin: jnp.exp(-beta * margin)))(RATES)


def test_a_run_of_a_traced_model_is_not_ranked():
    runs = jax.vmap(lambda tau: train(model=models.temperature(tau), snapshots=(1, STEPS)))(RATES)
    many = instances.stacked([instances.problem()] * 3)
    with pytest.raises(ValueError, match="model: expected one of known numbers, found one with traced values"):
        bias.rank(runs, many)


def noisy(key=KEY):
    return optax.chain(optax.add_noise(0.1, 0.55, key), optax.sgd(0.1))


def test_an_optimizer_with_random_keys_gets_one_for_each_seed():
    starts, many = jnp.stack([instances.free()] * 3), instances.stacked([instances.problem()] * 3)
    keys = jax.random.split(KEY, 3)
    run = descent.train_batch(starts, many, steps=STEPS, optimizer=noisy(), keys=keys)
    alone = train(optimizer=noisy(), key=keys[1])
    assert_close(run.weights[1], alone.weights, rtol=1e-9)
    assert len(np.unique(run.loss[:, -1])) == 3
    # Without a key it is the optimizer's own.
    assert not np.allclose(train(optimizer=noisy()).weights, alone.weights)
    with pytest.raises(ValueError, match=r"key: expected keys of shape \(3,\)"):
        descent.train_batch(starts, many, steps=STEPS, optimizer=noisy())
    with pytest.raises(ValueError, match=r"single random keys of the generator 'threefry2x32'.*'rbg'"):
        train(optimizer=noisy(jax.random.key(0, impl="rbg")), key=KEY)
    traced = jax.vmap(lambda key: train(optimizer=noisy(key)).loss[-1])(keys)
    assert len(np.unique(traced)) == 3


def averaged(state, weights):
    return state[0].mu


def test_what_is_read_of_state_and_weights_is_kept():
    free = optax.contrib.schedule_free(optax.sgd(0.3), 0.3)
    read = optax.contrib.schedule_free_eval_params
    run = train(optimizer=free, read=read, snapshots=(3, STEPS))
    W, state = instances.free(), free.init(instances.free())
    gradient = jax.grad(lambda W: losses.risk(W, instances.problem()))
    for k in range(STEPS):
        moves, state = free.update(gradient(W), state, W)
        W = optax.apply_updates(W, moves)
        if k + 1 in (3, STEPS):
            assert_close(run.snapshots[(k + 1) // STEPS], read(state, W), rtol=1e-9)
    assert_close(run.weights, run.snapshots[1])
    # The moments are those of the gradient, also where they are carried without its scale, and in models of one's own.
    adam = optax.adam(0.1, eps=0.0)
    moments = train(optimizer=descent.Exact(*adam), read=averaged).weights
    assert_close(train(optimizer=descent.scale_free(adam), read=averaged).weights, moments, rtol=1e-9)
    own = train(optimizer=descent.scale_free(adam), read=averaged, model=Added(np.zeros((d, d))))
    assert_close(own.weights, moments, rtol=1e-9)


@pytest.mark.parametrize("name", ["gd", "adam", "all of its own"])
def test_a_batch_of_seeds_is_not_traced(name):
    starts, many = jnp.stack([instances.free()] * 2), instances.stacked([instances.problem()] * 2)
    with pytest.raises(ValueError, match="found those of `jit`, `vmap` or `grad`; there, `vmap` the function of one"):
        jax.vmap(lambda number: descent.train_batch(starts, many, steps=STEPS, **WITH[name](number)).loss)(RATES)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda state, weights: weights[0], rf"read: expected weights of shapes \({d}, {d}\), found \({d},\)"),
        (lambda weights: weights, r"read: should be read\(state, weights\)"),
        (3, r"read: expected a function read\(state, weights\), found 3"),
    ],
)
def test_what_cannot_be_read_is_refused(read, message):
    with pytest.raises(ValueError, match=message):
        train(read=read)
