"""Penalties on the attention: against automatic differentiation, beyond its reach, and as descent meets them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import Problem, attention, descent, heads, losses, models, tokens
from jaxattn.descent import gradients, penalties
from tests import instances
from tests.instances import T, assert_close, n

RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
GD = descent.gd(0.5)
MODELS: dict[str, Any] = {
    "engine": (instances.free, models.plain),
    "factored": (instances.factored, models.plain),
    "function": (instances.free, attention.logits),
    "two heads": (lambda: (instances.free(), instances.free(1)), models.summed(2)),
}


def risk(params, problem, model, weight):
    logits = models.of(model).logits(params, problem)
    s = jax.nn.softmax(logits, axis=-1)
    plain = jnp.mean(losses.logistic(problem.Y * models.of(model).predictions(None, s, problem, heads.linear)))
    return plain + weight * jnp.mean(-jnp.sum(s * jax.nn.log_softmax(logits, axis=-1), axis=-1).sum(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.3, -2.0])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_goes_along_the_gradient_of_risk_and_penalty(name, weight):
    start, model = MODELS[name]
    problem, params = instances.problem(), start()
    G = jax.grad(risk)(params, problem, model, weight)
    given = {"penalty": descent.entropy(weight), "model": model, "steps": 1}
    found = descent.train(params, problem, optimizer=GD, **given).weights
    assert_close(found, jax.tree.map(lambda leaf, slope: leaf - 0.5 * slope, params, G))
    found = descent.train(params, problem, optimizer=RULE, **given)
    moved = jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope / jnp.linalg.norm(slope), params, G)
    assert_close(found.weights, moved)
    assert_close(found.gradient_norm[0], optax.tree.norm(G))
    # The loss of a run is the risk alone.
    assert_close(found.loss[0], risk(params, problem, model, 0.0))


@pytest.mark.parametrize("weight", [0.2, -0.2])
def test_its_direction_is_exact_where_all_has_underflowed(weight):
    """With logit gaps from 800 on, by hand: the nearest token's terms are all that is left."""
    logits = jnp.array([[0.0, -800.0, -2000.0, -jnp.inf], [-900.0, -950.0, -1100.0, 0.0], [-3e3, 0.0, -3e3, -4e3]])
    worth = jnp.array([[0.5, -0.2, 0.4, 9.0], [0.1, 0.3, -0.2, -0.4], [0.3, 0.2, 0.1, 0.9]])
    Y = jnp.array([1.0, -1.0, 1.0])
    rule = penalties.added(gradients.direction, descent.entropy(weight))
    slope = rule(jnp.asarray(0), logits, Y, lambda step, s: (jnp.sum(s * worth, axis=1), worth), losses.logistic)
    assert -801 < float(slope.log_scale) < -790
    of_risk = -0.7 / (1 + np.exp(0.5))  # times the worth of the nearest token of input 0, relative to the selected one
    by_hand = (of_risk * -1 + weight * 800) / 3
    found = np.asarray(slope.coefficients) * np.exp(np.asarray(slope.log_scale) + 800)
    np.testing.assert_allclose(found[0], [-by_hand, by_hand, 0, 0], rtol=1e-12)
    np.testing.assert_allclose(found[1:], 0, atol=1e-40)


@pytest.mark.slow
def test_a_loss_without_slope_leaves_the_penalty():
    logits, Y = jnp.array([[0.0, -1.0, -3.0]]), jnp.array([1.0])
    rule = penalties.added(gradients.exact, descent.entropy(0.5))
    read = lambda step, s: (jnp.sum(s, axis=1), jnp.array([[1.0, 2.0, 3.0]]))  # noqa: E731
    slope = rule(jnp.asarray(0), logits, Y, read, lambda margin: 0.0 * margin)
    entropy = lambda x: -jnp.sum(jax.nn.softmax(x) * jax.nn.log_softmax(x))  # noqa: E731
    assert_close(slope.coefficients[0], 0.5 * jax.grad(entropy)(logits[0]))


def test_descent_goes_on_beyond_saturation():
    run = descent.train(
        instances.free(), instances.problem(), optimizer=RULE, penalty=descent.entropy(0.1), steps=20_000
    )
    assert float(run.gradient_norm[-1]) < 1e-300
    assert float(jnp.linalg.norm(run.weights)) > 1000
    assert float(run.probability[-1]) > tokens.SATURATED


def test_tokens_that_are_not_seen_have_no_part():
    problem = instances.problem()
    present = jnp.ones((n, T), bool).at[:, -1].set(False)
    cut = Problem(X=problem.X[:, :-1], Z=problem.Z, Y=problem.Y, v=problem.v)
    masked = Problem(X=problem.X, Z=problem.Z, Y=problem.Y, v=problem.v, present=present)
    given = {"optimizer": RULE, "penalty": descent.entropy(0.5), "steps": 30}
    assert_close(
        descent.train(instances.free(), masked, **given).weights,
        descent.train(instances.free(), cut, **given).weights,
        rtol=1e-10,
    )


@pytest.mark.parametrize("name", ["engine", "two heads"])
def test_a_lane_is_a_lone_run(name):
    start, model = MODELS[name]
    many, params = instances.problems(3), start()
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), params)
    given = {"model": model, "optimizer": RULE, "steps": 20, "penalty": descent.entropy(0.3)}
    runs = descent.train_batch(starts, many, **given)
    for i in range(3):
        assert_close(instances.lane(runs, i), descent.train(params, instances.lane(many, i), **given), rtol=1e-9)


def test_a_penalty_of_ones_own_and_one_of_weight_zero():
    given = {"optimizer": RULE, "steps": 20}
    train = lambda **more: descent.train(instances.free(), instances.problem(), **given, **more).weights  # noqa: E731
    own = lambda log_probabilities: -0.3 * (log_probabilities + 1)  # noqa: E731
    assert_close(train(penalty=own), train(penalty=descent.entropy(0.3)), rtol=1e-10)
    assert_close(train(penalty=descent.entropy(0.0)), train(), rtol=1e-10)


def test_minibatches_and_penalty_are_added():
    noise: Any = descent.minibatches(1)
    key, problem, W = jax.random.key(3), instances.problem(), instances.free()
    inputs = noise(jax.random.fold_in(key, 0), n, T).inputs

    def whole(W):
        logits = attention.logits(W, problem)
        s = jax.nn.softmax(logits, axis=1)
        margins = problem.Y * jnp.einsum("nt,ntd,d->n", s, problem.X, problem.v)
        entropies = -jnp.sum(s * jnp.log(s), axis=1)
        return jnp.mean(inputs * losses.logistic(margins) + 0.3 * entropies)

    run = descent.train(W, problem, optimizer=GD, noise=noise, key=key, penalty=descent.entropy(0.3), steps=1)
    assert_close(run.weights, W - 0.5 * jax.grad(whole)(W))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: descent.entropy(float("nan")), "weight: expected a finite number, found nan"),
        (lambda: descent.entropy(-float("inf")), "weight: expected a finite number, found -inf"),
        (
            lambda: descent.train(instances.free(), instances.problem(), penalty=0.1),
            r"penalty: expected a function penalty\(log_probabilities\), found 0.1",
        ),
    ],
)
def test_bad_input_is_one_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
