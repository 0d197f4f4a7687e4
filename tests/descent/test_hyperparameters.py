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
from tests.descent.cases import KEY, STEPS, gradient_of, updated
from tests.instances import assert_close, d

RATES = jnp.array([0.1, 0.2])
START, PROBLEM = instances.free(), instances.problem()
STARTS, PROBLEMS = instances.stacked([START] * 2), instances.stacked([PROBLEM] * 2)


def train(start=START, **given):
    return descent.train(start, PROBLEM, steps=STEPS, **given)


def lifted(train):
    """A run for every rate, compiled as one program."""
    return jax.jit(jax.vmap(train, (None, 0)))(START, RATES)


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
    "mirror": lambda number: {"optimizer": descent.mirror(1 + number, number)},
    "momentum, steepest, falling": lambda number: {
        "optimizer": descent.momentum(descent.steepest("max", descent.falling_step(number, number)), number)
    },
    "adam, scale-free": lambda number: {
        "optimizer": descent.scale_free(optax.adam(number, b1=number, b2=number, eps=0.0))
    },
    "clipped, scheduled, decayed": lambda number: {
        "optimizer": optax.chain(
            optax.clip_by_global_norm(number),
            optax.adamw(optax.cosine_decay_schedule(number, 5), b1=number, weight_decay=number),
        )
    },
    "temperature, falling": lambda number: {
        "model": models.temperature(number),
        "optimizer": descent.falling(descent.normalized_gd(number, number, number), number),
    },
    "quadratic, entropy, dropout, long first": lambda number: {
        "head": heads.Quadratic(number),
        "penalty": descent.entropy(number),
        "noise": descent.dropout(number),
        "key": KEY,
        "optimizer": descent.long_first_gd(number, 10 * number),
    },
    "partial, gumbel, steepest": lambda number: {
        "loss": partial(powered, number),
        "noise": descent.gumbel(number),
        "key": KEY,
        "optimizer": descent.steepest("spectral", number),
    },
    "all of its own": lambda number: {
        "loss": Scaled(number),
        "head": Weighted(number * jnp.arange(d)),
        "model": Added(number * jnp.eye(d)),
        "optimizer": descent.gd(number),
    },
}


@pytest.mark.parametrize("name", WITH)
def test_a_traced_number_is_a_number(name):
    together = lifted(lambda start, number: train(start, **WITH[name](number)))
    alone = train(**WITH[name](0.2))
    assert_close((together.weights[1], together.loss[1]), (alone.weights, alone.loss), rtol=1e-9)
    # Each lane has its own.
    assert not np.allclose(together.weights[0], together.weights[1])
    # The rule says what gradient the optimizer gets, and holds no traced value.
    assert together.rule is not None
    scale_free = [isinstance(one, descent.ScaleFree) for one in (together.rule.optimizer, WITH[name](0.1)["optimizer"])]
    assert scale_free[0] == scale_free[1]
    assert hash(together.rule) == hash(jax.eval_shape(lambda: together).rule)


def test_under_jit_or_vmap_alone_too():
    def loss(number):
        return train(**WITH["temperature, falling"](number)).loss

    expected = loss(0.2)
    assert_close(jax.jit(loss)(0.2), expected, rtol=1e-9)
    assert_close(jax.vmap(loss)(RATES)[1], expected, rtol=1e-9)


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
        partial(descent.mirror, 3.0),
        lambda rate: descent.momentum(descent.steepest("max", descent.falling_step(rate)), rate),
        lambda rate: WITH["adam, scale-free"](rate)["optimizer"],
        lambda rate: WITH["clipped, scheduled, decayed"](rate)["optimizer"],
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
    runs = lifted(lambda start, tau: train(start, model=models.temperature(tau), snapshots=(1, STEPS)))
    with pytest.raises(ValueError, match="model: expected one of known numbers, found one with traced values"):
        bias.rank(runs, PROBLEMS)


def noisy(key=KEY):
    return optax.chain(optax.add_noise(0.1, 0.55, key), optax.sgd(0.1))


def test_an_optimizer_with_random_keys_gets_one_for_each_seed():
    keys = jax.random.split(KEY, 2)
    run = descent.train_batch(STARTS, PROBLEMS, steps=STEPS, optimizer=noisy(), keys=keys)
    alone = train(optimizer=noisy(), key=keys[1])
    assert_close(run.weights[1], alone.weights, rtol=1e-9)
    assert run.loss[0, -1] != run.loss[1, -1]
    # Without a key it is the optimizer's own.
    assert not np.allclose(train(optimizer=noisy()).weights, alone.weights)
    with pytest.raises(ValueError, match=r"key: expected keys of shape \(2,\)"):
        descent.train_batch(STARTS, PROBLEMS, steps=STEPS, optimizer=noisy())
    with pytest.raises(ValueError, match=r"single random keys of the generator 'threefry2x32'.*'rbg'"):
        train(optimizer=noisy(jax.random.key(0, impl="rbg")), key=KEY)
    first, second = jax.vmap(lambda key: train(optimizer=noisy(key)).loss[-1])(keys)
    assert first != second


def averaged(state, weights):
    return state[0].mu


def test_what_is_read_of_state_and_weights_is_kept():
    free = optax.contrib.schedule_free(optax.sgd(0.3), 0.3)
    read = optax.contrib.schedule_free_eval_params
    run = train(optimizer=free, read=read, snapshots=(3, STEPS))
    W, state = START, free.init(START)
    for k in range(STEPS):
        W, state = updated(free.update, gradient_of(W, PROBLEM, models.plain), state, W)
        if k + 1 in (3, STEPS):
            assert_close(run.snapshots[(k + 1) // STEPS], read(state, W), rtol=1e-9)
    assert_close(run.weights, run.snapshots[1])
    # The moments are those of the gradient, also where they are carried without its scale, and in models of one's own.
    adam = optax.adam(0.1, eps=0.0)
    moments = train(optimizer=descent.Exact(*adam), read=averaged).weights
    assert_close(train(optimizer=descent.scale_free(adam), read=averaged).weights, moments, rtol=1e-9)
    own = train(optimizer=descent.scale_free(adam), read=averaged, model=Added(np.zeros((d, d))))
    assert_close(own.weights, moments, rtol=1e-9)


@pytest.mark.parametrize("name", ["temperature, falling", "mirror", "all of its own"])
def test_a_batch_of_seeds_is_not_traced(name):
    with pytest.raises(ValueError, match="found those of `jit`, `vmap` or `grad`; there, `vmap` the function of one"):
        jax.vmap(lambda number: descent.train_batch(STARTS, PROBLEMS, steps=STEPS, **WITH[name](number)).loss)(RATES)


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
