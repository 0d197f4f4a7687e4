"""Models, noise and penalties: every step by automatic differentiation, and beyond its reach; and lanes."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import Problem, attention, descent, heads, losses, models, tokens
from jaxattn.descent import gradients, penalties
from jaxattn.models import Joint
from tests import instances
from tests.descent.cases import EXACT_GD, KEY, MODELS, SCALE_FREE, STEPS, gradient_of, reference, risk
from tests.instances import T, assert_close, n, slow

CHANCES: dict[str, Any] = {
    "none": {},
    "minibatches": {"noise": descent.minibatches(2)},
    "dropout": {"noise": descent.dropout(0.4)},
    "gumbel": {"noise": descent.gumbel(0.7)},
    "entropy": {"penalty": descent.entropy(0.3)},
    "spread": {"penalty": descent.entropy(-2.0)},
    "minibatches and entropy": {"noise": descent.minibatches(1), "penalty": descent.entropy(0.3)},
}
RULES = {
    "scale-free": SCALE_FREE,
    "published": descent.gd(0.5),
    "exact": EXACT_GD,
    "adam": descent.ScaleFree(*optax.adam(0.01, eps=0.0)),
    "jointly": descent.jointly_normalized_gd(0.1, penalty=0.0),
}
DEFAULT = {
    *(("free", chance, "scale-free") for chance in ("minibatches and entropy", "dropout")),
    *(("function", "gumbel", "exact"), ("function", "none", "adam")),
    *(("two heads", "entropy", "scale-free"), ("two heads", "none", "jointly")),
    ("heads and values", "minibatches", "scale-free"),
}
SLOW = {
    *((name, chance, "scale-free") for name in MODELS for chance in CHANCES if chance not in ("none", "dropout")),
    *((name, chance, "exact") for name in ("free", "factored", "function") for chance in ("minibatches", "spread")),
    *(("function", "none", rule) for rule in ("scale-free", "exact")),
    ("free", "gumbel", "published"),
}
LANES = {
    *(("free", "dropout", "scale-free"), ("function", "gumbel", "exact")),
    ("heads and values", "minibatches", "scale-free"),
}


def every(default):
    return [case if case in default else slow(*case) for case in sorted(SLOW | DEFAULT)]


def given_of(name, chance, rule) -> dict[str, Any]:
    model = MODELS[name]()[1]
    return {"model": model, "optimizer": RULES[rule], "steps": STEPS, "snapshots": (1, STEPS), **CHANCES[chance]}


@cache
def trained(name, chance, rule) -> Any:
    keys: Any = {"key": KEY} if "noise" in CHANCES[chance] else {}
    return descent.train(MODELS[name]()[0], instances.problem(), **given_of(name, chance, rule), **keys)


@pytest.mark.parametrize(("name", "chance", "rule"), every(DEFAULT))
def test_every_step_goes_along_the_gradient_through_noise_and_penalty(name, chance, rule):
    (params, model), problem, run = MODELS[name](), instances.problem(), trained(name, chance, rule)
    noise, weight = CHANCES[chance].get("noise"), getattr(CHANCES[chance].get("penalty"), "weight", 0.0)
    expected = reference(RULES[rule], params, problem, model, noise, weight)
    for k, step in enumerate((1, STEPS)):
        assert_close(instances.lane(run.snapshots, k), expected[step], rtol=1e-9)
    # Both are read before the update, and the loss is the risk alone, of all inputs.
    draw = None if noise is None else noise(jax.random.fold_in(KEY, 0), n, T)
    slope = gradient_of(params, problem, model, draw, weight)
    assert_close(run.gradient_norm[0], optax.tree.norm(slope), rtol=1e-10)
    draw = None if "minibatches" in chance else draw
    assert_close(run.loss[0], risk(params, problem, model, draw), rtol=1e-10)
    # The probabilities are those of the attention without noise.
    s = jax.nn.softmax(model.logits(models.parts(params).attention, problem), axis=-1)
    assert_close(run.probability[0], jnp.mean(jnp.max(s, axis=-1)), rtol=1e-10)
    if rule in ("scale-free", "jointly"):
        moves = jax.tree.map(lambda end, start: np.linalg.norm(end - start), instances.lane(run.snapshots, 0), params)
        found = jax.tree.leaves(moves)
        np.testing.assert_allclose(found if rule == "scale-free" else np.linalg.norm(found), 0.1, rtol=1e-9)


@pytest.mark.parametrize(("name", "chance", "rule"), every(LANES))
def test_a_lane_is_a_lone_run(name, chance, rule):
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), MODELS[name]()[0])
    is_noisy = "noise" in CHANCES[chance]
    keys: Any = {"keys": jnp.stack([KEY, jax.random.key(1)])} if is_noisy else {}
    runs = descent.train_batch(starts, instances.problems(2), **given_of(name, chance, rule), **keys)
    assert_close(instances.lane(runs, 0), trained(name, chance, rule), rtol=1e-9)
    assert not np.allclose(jax.tree.leaves(runs.weights)[0][0], jax.tree.leaves(runs.weights)[0][1])
    if is_noisy:  # Its own key draws its noise.
        again = descent.train_batch(
            starts, instances.problems(2), **given_of(name, chance, rule), keys=keys["keys"][::-1]
        )
        assert not np.allclose(jax.tree.leaves(runs.weights)[0][0], jax.tree.leaves(again.weights)[0][0])


def test_a_minibatch_has_its_size():
    for k in range(3):
        draw: Any = descent.minibatches(2)(jax.random.fold_in(KEY, k), n, T)
        assert sorted(np.asarray(draw.inputs)) == [0, n / 2, n / 2]
    mask = np.asarray(descent.dropout(0.4)(KEY, n, T).attention)  # pyright: ignore[reportAttributeAccessIssue]
    assert set(np.unique(mask)) == {0.0, 1 / 0.6}


@pytest.mark.parametrize("noise", [descent.minibatches(n), slow(descent.dropout(0.0))])
def test_noise_without_effect_is_the_full_gradient(noise):
    given = {"optimizer": SCALE_FREE, "steps": STEPS, "snapshots": (1, STEPS)}
    found = descent.train(instances.free(), instances.problem(), noise=noise, key=KEY, **given).weights
    assert_close(found, reference(SCALE_FREE, instances.free(), instances.problem())[-1], rtol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_the_direction_is_that_of_the_gradient(name):
    params, model = MODELS[name]()
    problem = instances.problem()
    found = jax.jit(partial(descent.direction, model=model))(params, problem)
    scales = found.log_scale if isinstance(found.log_scale, Joint) else Joint(found.log_scale, None)
    parts = zip(models.parts(found.gradient), scales, strict=True)
    whole = [jax.tree.map(lambda leaf, scale=scale: leaf * np.exp(scale), part) for part, scale in parts]
    assert_close(whole, list(models.parts(gradient_of(params, problem, model))), rtol=1e-12)
    assert_close(jnp.mean(found.losses), risk(params, problem, model))


def test_the_direction_stays_where_the_softmax_has_saturated():
    """With logits of some thousands the gradient of W underflows; its direction is that of the nearest tokens."""
    problem, W = instances.problem(), 2e5 * instances.free()
    assert float(jnp.abs(gradient_of(W, problem, models.plain)).max()) < 1e-300
    found = jax.jit(partial(descent.direction, model=models.with_values()))(Joint(W, problem.v), problem)
    assert float(found.log_scale.attention) < -1000 < -10 < float(found.log_scale.readout)
    G = np.asarray(found.gradient.attention)
    assert np.linalg.norm(G) > 1e-3
    # Against higher logits of the best scored tokens, first order by hand in extended exponents.
    logits, X = np.asarray(attention.logits(W, problem)), np.asarray(problem.X)
    top, rows = logits.argmax(axis=1), np.arange(n)
    scores = np.einsum("ntd,d->nt", X, problem.v)
    margin = np.asarray(problem.Y) * scores[rows, top]
    exponents = logits - logits.max(axis=1, keepdims=True)
    share = -np.asarray(problem.Y) / (1 + np.exp(margin)) / n
    exponents[rows, top] = -np.inf
    size = np.exp(exponents - exponents.max()) * (scores - scores[rows, top][:, None]) * share[:, None]
    by_hand = np.einsum("nt,ntd,ne->de", size, X - X[rows, top][:, None], problem.Z)
    assert np.sum(G * by_hand) / np.linalg.norm(G) / np.linalg.norm(by_hand) == pytest.approx(1, abs=1e-12)


def test_a_users_loop_is_training():
    problem, W = instances.problem(), instances.free()
    direction = jax.jit(descent.direction)
    for _ in range(STEPS):
        G = direction(W, problem).gradient
        W = W - 0.1 * G / jnp.linalg.norm(G)
    assert_close(W, reference(SCALE_FREE, instances.free(), problem)[-1], rtol=1e-10)


@pytest.mark.parametrize("chance", ["gumbel", "entropy"])
def test_it_goes_on_beyond_saturation(chance):
    keys: Any = {"key": KEY} if chance == "gumbel" else {}
    given: Any = given_of("free", chance, "scale-free") | keys | {"steps": 20_000}
    run = descent.train(instances.free(), instances.problem(), **given)
    assert float(jnp.linalg.norm(run.weights)) > (500 if chance == "gumbel" else 1000)
    assert float(run.gradient_norm[-1]) < (1e-100 if chance == "gumbel" else 1e-300)
    assert float(run.probability[-1]) > (0 if chance == "gumbel" else tokens.SATURATED)


def test_values_are_trained_on_where_the_attention_is_done():
    """As the risk falls to zero, v grows without an end, and the attention keeps moving."""
    params, model = MODELS["values"]()
    given = {"model": model, "optimizer": SCALE_FREE, "steps": 3000, "snapshots": (2000, 3000)}
    run = descent.train(params, instances.problem(), **given)
    assert run.loss[-1] < 1e-20
    moved = jax.tree.map(lambda leaf: np.linalg.norm(leaf[1] - leaf[0]), run.snapshots)
    assert moved.readout > 50
    assert moved.attention > 1


@pytest.mark.parametrize("weight", [0.2, -0.2])
def test_a_penalty_is_exact_where_all_has_underflowed(weight):
    """With logit gaps from 800 on, by hand: the nearest token's terms are all that is left."""
    logits = jnp.array([[0.0, -800.0, -2000.0, -jnp.inf], [-900.0, -950.0, -1100.0, 0.0], [-3e3, 0.0, -3e3, -4e3]])
    worth = jnp.array([[0.5, -0.2, 0.4, 9.0], [0.1, 0.3, -0.2, -0.4], [0.3, 0.2, 0.1, 0.9]])
    Y = jnp.array([1.0, -1.0, 1.0])
    rule = penalties.added(gradients.direction, descent.entropy(weight))

    @jax.jit
    def slope_of(logits):
        return rule(jnp.asarray(0), logits, Y, lambda step, s: (jnp.sum(s * worth, axis=1), worth), losses.logistic)

    slope = slope_of(logits)
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


def test_tokens_that_are_not_seen_have_no_part_in_a_penalty():
    problem = instances.problem()
    masked = Problem(**problem.arrays, present=jnp.ones((n, T), bool).at[:, -1].set(False))
    cut = Problem(**problem.arrays | {"X": problem.X[:, :-1]})
    rule = penalties.added(gradients.direction, descent.entropy(0.3))

    @jax.jit
    def slope_of(one):
        read = gradients.reading(one, heads.linear)
        return rule(jnp.asarray(0), attention.logits(instances.free(), one), one.Y, read, losses.logistic)

    found, expected = map(slope_of, (masked, cut))
    assert_close(found.coefficients[:, :-1], expected.coefficients)
    assert_close(found.log_scale, expected.log_scale)
    np.testing.assert_array_equal(found.coefficients[:, -1], 0)


def test_a_penalty_of_ones_own_and_one_of_weight_zero():
    log_probabilities = jnp.log(jnp.array([[0.1, 0.9], [0.5, 0.5]]))
    assert_close(descent.entropy(0.3)(log_probabilities), -0.3 * (log_probabilities + 1))
    given = {"optimizer": SCALE_FREE, "steps": STEPS, "snapshots": (1, STEPS), "penalty": lambda log_s: 0.0 * log_s}
    found = descent.train(instances.free(), instances.problem(), **given).weights
    assert_close(found, reference(SCALE_FREE, instances.free(), instances.problem())[-1], rtol=1e-10)
