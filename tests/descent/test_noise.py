"""Noise: minibatches, dropout and samples as written out by hand, the full gradient as a limit, and bad input."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, descent, models
from tests import instances
from tests.instances import T, assert_close, n

KEY = jax.random.key(7)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
# One that engines know, and one that they do not.
MODELS = {"engine": models.plain, "function": attention.logits}


def train(noise, model: Any = models.plain, steps=1, key: Any = KEY, optimizer: Any = RULE, **given: Any):
    given = {"noise": noise, "key": key, "model": model, "optimizer": optimizer, "steps": steps} | given
    return descent.train(instances.free(), instances.problem(), **given)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_minibatch_step_is_a_step_of_its_inputs(model):
    noise: Any = descent.minibatches(2)
    problem = instances.problem()
    for k in range(3):
        draw: Any = noise(jax.random.fold_in(KEY, k), n, T)
        assert sorted(np.asarray(draw.inputs)) == [0, n / 2, n / 2]
    inside = np.flatnonzero(noise(jax.random.fold_in(KEY, 0), n, T).inputs)
    part = Problem(X=problem.X[inside], Z=problem.Z[inside], Y=problem.Y[inside], v=problem.v)
    expected = descent.train(instances.free(), part, optimizer=RULE, steps=1).weights
    assert_close(train(noise, MODELS[model]).weights, expected, rtol=1e-10)
    exact = descent.Exact(*descent.gd(0.5))
    expected = descent.train(instances.free(), part, optimizer=exact, steps=1).weights
    assert_close(train(noise, MODELS[model], optimizer=exact).weights, expected, rtol=1e-10)


@pytest.mark.parametrize("model", MODELS)
def test_dropout_is_the_gradient_through_what_is_kept(model):
    noise: Any = descent.dropout(0.4)
    problem, W = instances.problem(), instances.free()
    mask = noise(jax.random.fold_in(KEY, 0), n, T).attention
    assert set(np.unique(mask)) == {0.0, 1 / 0.6}

    def risk(W):
        s = attention.probabilities(W, problem) * mask
        margins = problem.Y * jnp.einsum("nt,ntd,d->n", s, problem.X, problem.v)
        return jnp.mean(jnp.log1p(jnp.exp(-margins)))

    G = jax.grad(risk)(W)
    assert_close(train(noise, MODELS[model]).weights, W - 0.1 * G / jnp.linalg.norm(G), rtol=1e-10)


@pytest.mark.parametrize("model", MODELS)
def test_a_gumbel_sample_is_the_straight_through_estimator(model):
    noise: Any = descent.gumbel(0.7)
    problem, W, tau = instances.problem(), instances.free(), 0.7
    gumbel = noise(jax.random.fold_in(KEY, 0), n, T).noise

    def risk(W):
        logits = attention.logits(W, problem) + gumbel
        soft = jax.nn.softmax(logits / tau, axis=1)
        hard = jax.nn.one_hot(jnp.argmax(logits, axis=1), T)
        s = soft + jax.lax.stop_gradient(hard - soft)
        margins = problem.Y * jnp.einsum("nt,ntd,d->n", s, problem.X, problem.v)
        return jnp.mean(jnp.log1p(jnp.exp(-margins)))

    value, G = jax.value_and_grad(risk)(W)
    run = train(noise, MODELS[model])
    assert_close(run.weights, W - 0.1 * G / jnp.linalg.norm(G), rtol=1e-10)
    assert_close((run.loss[0], run.gradient_norm[0]), (value, jnp.linalg.norm(G)), rtol=1e-10)
    # The series of probabilities is that of the attention without noise.
    assert_close(run.probability[0], jnp.mean(jnp.max(attention.probabilities(W, problem), axis=1)), rtol=1e-10)
    for optimizer in (descent.gd(0.5), descent.Exact(*descent.gd(0.5))):
        assert_close(train(noise, MODELS[model], optimizer=optimizer).weights, W - 0.5 * G, rtol=1e-10)


def test_a_gumbel_sample_goes_on_beyond_saturation():
    run = train(descent.gumbel(1.0), steps=20_000)
    assert float(jnp.linalg.norm(run.weights)) > 500
    assert float(run.gradient_norm[-1]) < 1e-100


def test_a_gumbel_sample_is_read_by_a_trained_readout_and_by_all_heads():
    problem, noise = instances.problem(), descent.gumbel(1.0)
    sampled: Any = noise(jax.random.fold_in(KEY, 0), n, T)
    picks = jax.nn.one_hot(
        jnp.argmax(attention.logits(instances.free(), problem) + sampled.noise, axis=1),
        T,
    )
    params = models.Joint((instances.free(), instances.free()), problem.v)
    given = {"noise": noise, "key": KEY, "model": models.with_values(models.summed(2)), "optimizer": RULE, "steps": 1}
    moved = descent.train(params, problem, **given).weights.readout - problem.v
    outputs = 2 * jnp.einsum("nt,ntd->nd", picks, problem.X)
    margins = problem.Y * (outputs @ problem.v)
    G = jnp.mean((problem.Y * -jax.nn.sigmoid(-margins))[:, None] * outputs, axis=0)
    assert_close(moved, -0.1 * G / jnp.linalg.norm(G), rtol=1e-10)


@pytest.mark.parametrize("noise", [descent.minibatches(n), descent.dropout(0.0)])
def test_without_effect_it_is_the_full_gradient(noise):
    expected = descent.train(instances.free(), instances.problem(), optimizer=RULE, steps=20).weights
    assert_close(train(noise, steps=20).weights, expected, rtol=1e-10)


@pytest.mark.parametrize("noise", [descent.minibatches(1), descent.gumbel(1.0)])
@pytest.mark.parametrize("model", MODELS)
def test_a_lane_is_a_lone_run_with_its_key(model, noise):
    keys = jax.random.split(KEY, 3)
    many, starts = instances.problems(3), instances.stacked([instances.free(i) for i in range(3)])
    given = {"noise": noise, "model": MODELS[model], "optimizer": RULE, "steps": 20}
    runs = descent.train_batch(starts, many, keys=keys, **given)
    for i in range(3):
        lone = descent.train(starts[i], instances.lane(many, i), key=keys[i], **given)
        assert_close(instances.lane(runs, i), lone, rtol=1e-9)
    assert not np.allclose(
        runs.weights[0], descent.train(starts[0], instances.lane(many, 0), key=keys[1], **given).weights
    )


def test_a_readout_is_moved_by_the_minibatch_alone():
    problem, params = instances.problem(), models.Joint(instances.free(), instances.problem().v)
    noise: Any = descent.minibatches(1)
    (inside,) = np.flatnonzero(noise(jax.random.fold_in(KEY, 0), n, T).inputs)
    given = {"noise": noise, "key": KEY, "model": models.with_values(), "optimizer": RULE, "steps": 1}
    moved = descent.train(params, problem, **given).weights.readout - problem.v
    output = attention.attended(attention.probabilities(params.attention, problem), problem)[inside]
    assert_close(moved, 0.1 * problem.Y[inside] * output / jnp.linalg.norm(output), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: descent.minibatches(0), "size: expected at least 1, found 0"),
        (lambda: train(descent.minibatches(n + 1)), "size: expected a minibatch of at most the 3 inputs, found 4"),
        (lambda: descent.dropout(1.0), "rate: expected a number of at least 0 and below 1, found 1.0"),
        (lambda: descent.gumbel(0.0), "tau: expected a positive finite number, found 0.0"),
        (lambda: train(descent.dropout(0.1), key=None), "key: expected one for the noise, .*found None"),
        (
            lambda: train(descent.full_batch),
            "noise: expected a law such as descent.dropout.* for the key, found full_batch",
        ),
        (
            lambda: train(descent.dropout(0.1), key=jax.random.split(KEY)),
            r"key: expected one for the noise.*shape \(2,\)",
        ),
        (lambda: train(0.1), r"noise: expected a function noise\(key, n, T\), found 0.1"),
    ],
)
def test_bad_input_is_one_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
