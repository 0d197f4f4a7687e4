"""Any model's gradient, against automatic differentiation and beyond its reach; and training models with it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, heads, losses, models
from jaxattn.descent import loops
from jaxattn.models import Joint
from tests import instances
from tests.instances import T, assert_close, d, n

RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
P = np.random.default_rng(0).normal(size=(T, d))
# Parameters and a model of each kind.
MODELS = {
    "free": lambda: (instances.free(), models.plain),
    "factored": lambda: (instances.factored(), models.key_only(P)),
    "two heads": lambda: ((instances.free(), instances.factored()), models.summed(2)),
    "values": lambda: (Joint(instances.free(), instances.problem().v), models.with_values()),
    "heads and values": lambda: (
        Joint((instances.free(0), instances.free(1)), instances.problem().v),
        models.with_values(models.summed(2)),
    ),
}


def risk(params, problem, model, head=heads.linear):
    weights, readout = models.parts(params)
    s = jax.nn.softmax(model.logits(weights, problem), axis=-1)
    return jnp.mean(losses.logistic(problem.Y * model.predictions(readout, s, problem, head)))


def whole(found):
    """The gradient with its factor."""
    if not isinstance(found.log_scale, Joint):
        return jax.tree.map(lambda leaf: leaf * np.exp(found.log_scale), found.gradient)
    parts = zip(found.gradient, found.log_scale, strict=True)
    return Joint(*(jax.tree.map(lambda leaf, scale=scale: leaf * np.exp(scale), part) for part, scale in parts))


@pytest.mark.parametrize("name", MODELS)
def test_the_direction_is_that_of_the_gradient(name):
    params, model = MODELS[name]()
    problem = instances.problem()
    found = descent.direction(params, problem, model=model)
    assert_close(whole(found), jax.grad(risk)(params, problem, model), rtol=1e-12)
    assert_close(jnp.mean(found.losses), risk(params, problem, model))


def test_the_direction_stays_where_the_softmax_has_saturated():
    """With logits of some thousands the gradient of W underflows; its direction is that of the nearest tokens."""
    problem, W = instances.problem(), 2e5 * instances.free()
    assert float(jnp.abs(jax.grad(losses.risk)(W, problem)).max()) < 1e-300
    found = descent.direction(Joint(W, problem.v), problem, model=models.with_values())
    assert float(found.log_scale.attention) < -1000 < -10 < float(found.log_scale.readout)
    G = np.asarray(found.gradient.attention)
    assert np.linalg.norm(G) > 1e-3
    # Against higher logits of the best scored tokens, first order by hand in extended exponents.
    logits = np.asarray(attention.logits(W, problem))
    top = logits.argmax(axis=1)
    scores = np.einsum("ntd,d->nt", problem.X, problem.v)
    margin = np.asarray(problem.Y) * scores[np.arange(n), top]
    exponents = logits - logits.max(axis=1, keepdims=True)
    share = -np.asarray(problem.Y) / (1 + np.exp(margin)) / n
    exponents[np.arange(n), top] = -np.inf
    size = np.exp(exponents - exponents.max()) * (scores - scores[np.arange(n), top][:, None]) * share[:, None]
    by_hand = np.einsum(
        "nt,ntd,ne->de", size, np.asarray(problem.X) - np.asarray(problem.X)[np.arange(n), top][:, None], problem.Z
    )
    assert np.sum(G * by_hand) / np.linalg.norm(G) / np.linalg.norm(by_hand) == pytest.approx(1, abs=1e-12)


def test_a_users_loop_is_training():
    problem, W = instances.problem(), instances.free()
    for _ in range(20):
        G = descent.direction(W, problem).gradient
        W = W - 0.1 * G / jnp.linalg.norm(G)
    assert_close(W, descent.train(instances.free(), problem, optimizer=RULE, steps=20).weights, rtol=1e-10)


@pytest.mark.parametrize("optimizer", [RULE, descent.ScaleFree(*optax.adam(0.01, eps=0.0)), descent.gd(0.5)])
def test_a_function_trains_as_the_model_that_it_is(optimizer):
    problem, W = instances.problem(), instances.free()
    given: Any = {
        "optimizer": descent.Exact(*optimizer) if type(optimizer) is optax.GradientTransformation else optimizer
    }
    given |= {"steps": 50, "snapshots": (1, 50)}
    expected = descent.train(W, problem, **given)
    found = descent.train(W, problem, model=attention.logits, **given)
    assert_close(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["two heads", "heads and values"])
def test_a_lane_is_a_lone_run(name):
    params, model = MODELS[name]()
    many = instances.problems(3)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), params)
    given = {"model": model, "optimizer": RULE, "steps": 30, "snapshots": (10, 30)}
    runs = descent.train_batch(starts, many, **given)
    for i in range(3):
        assert_close(instances.lane(runs, i), descent.train(params, instances.lane(many, i), **given), rtol=1e-9)


def test_each_head_moves_by_a_step_of_its_own():
    params, model = MODELS["two heads"]()
    run = descent.train(params, instances.problem(), model=model, optimizer=RULE, steps=1)
    moves = [
        np.linalg.norm(end - start)
        for end, start in zip(jax.tree.leaves(run.weights), jax.tree.leaves(params), strict=True)
    ]
    np.testing.assert_allclose(moves, 0.1)
    both = descent.train(
        params, instances.problem(), model=model, optimizer=descent.jointly_normalized_gd(0.1, penalty=0.0), steps=1
    )
    squares = [
        np.sum((end - start) ** 2)
        for end, start in zip(jax.tree.leaves(both.weights), jax.tree.leaves(params), strict=True)
    ]
    assert np.sqrt(sum(squares)) == pytest.approx(0.1)


def test_values_are_trained_on_where_the_attention_is_done():
    """As the risk falls to zero, v grows without an end, and the attention keeps moving."""
    params, model = MODELS["values"]()
    run = descent.train(params, instances.problem(), model=model, optimizer=RULE, steps=3000, snapshots=(2000, 3000))
    assert run.loss[-1] < 1e-20
    moved = jax.tree.map(lambda leaf: np.linalg.norm(leaf[1] - leaf[0]), run.snapshots)
    assert moved.readout > 50
    assert moved.attention > 1


def test_an_optimizer_that_sees_the_scale_is_refused_as_scale_free():
    params, model = MODELS["two heads"]()
    with pytest.raises(ValueError, match="optimizer: expected one that is blind to the gradient's scale"):
        descent.train(params, instances.problem(), model=model, optimizer=descent.ScaleFree(*optax.adam(0.1)), steps=2)


def test_nothing_is_compiled_twice():
    params, model = MODELS["two heads"]()
    descent.train(params, instances.problem(), model=model, optimizer=descent.normalized_gd(0.1), steps=3)
    before = loops.trainer_of_model.cache_info().misses
    descent.train(params, instances.problem(1), model=model, optimizer=descent.normalized_gd(0.2), steps=3)
    assert loops.trainer_of_model.cache_info().misses == before
