"""Steps that grow shorter: how long each is, on every path that descent takes, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import data, descent, language, losses
from jaxattn.attention import Factored, Spanned, matrix
from jaxattn.descent import engines, gradients, keys, loops, training
from jaxattn.heads import linear
from tests import instances
from tests.instances import assert_close

SEPARATE, JOINT = descent.normalized_gd(0.3, floor=0.0, penalty=0.0), descent.jointly_normalized_gd(0.3, penalty=0.0)
PENALIZED = descent.exact_normalized_gd(0.3, penalty=0.01)


def lengths(factors):
    return np.array([jnp.linalg.norm(one) for one in factors])


def moved(optimizer, steps=4):
    """The weights at the start and after every step."""
    start = instances.factored(m=2)
    run = descent.train(start, instances.problem(), optimizer=optimizer, steps=steps, snapshots=range(1, steps + 1))
    return [start, *(instances.lane(run.snapshots, k) for k in range(steps))]


def taken(weights):
    return [lengths(Factored(b.K - a.K, b.Q - a.Q)) for a, b in itertools.pairwise(weights)]


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_the_kth_step_is_k_to_the_power_shorter(power):
    k = np.arange(1, 5)[:, None]
    expected = 0.3 * k**-power
    found = taken(moved(descent.falling(SEPARATE, power)))
    np.testing.assert_allclose(found, np.repeat(expected, 2, axis=1), rtol=1e-9)
    both = np.linalg.norm(taken(moved(descent.falling(JOINT, power))), axis=1, keepdims=True)
    np.testing.assert_allclose(both, expected, rtol=1e-9)


def test_a_relative_step_is_divided_by_the_length_of_what_it_moves():
    weights = moved(descent.relative(SEPARATE))
    before = np.array([lengths(one) for one in weights[:-1]])
    np.testing.assert_allclose(taken(weights) * before, 0.3, rtol=1e-9)
    weights = moved(descent.relative(JOINT))
    both = [np.linalg.norm(lengths(one)) for one in weights[:-1]]
    np.testing.assert_allclose(np.linalg.norm(taken(weights), axis=1) * both, 0.3, rtol=1e-9)


def test_weights_of_zero_move_by_a_whole_step():
    run = descent.train(jnp.zeros((5, 5)), instances.problem(), optimizer=descent.relative(SEPARATE), steps=1)
    np.testing.assert_allclose(jnp.linalg.norm(run.weights), 0.3, rtol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("pace", [descent.falling, descent.relative])
@pytest.mark.parametrize("rule", [SEPARATE, JOINT, PENALIZED])
def test_both_engines_of_factors_take_one_trajectory(pace, rule):
    optimizer, start, problem = pace(rule), instances.factored(m=2), instances.problem()
    # In 60 steps the last digit, which depends on the version of XLA, becomes the ninth.
    ends, steps = [], 40
    for engine in (engines.Direct, keys.Keys):
        given = training.rule_of(optimizer)
        train = loops.trainer(optimizer.update, steps, 1, losses.logistic, linear, given, engine(optimizer.update))
        ends.append(train(start, problem, optimizer.init(start), None, jnp.array([steps])))
    assert_close(ends[1].weights.W, ends[0].weights.W, rtol=1e-9)
    assert_close(ends[1].gradient_norm, ends[0].gradient_norm, rtol=1e-7)


def test_lanes_are_those_of_each_seed():
    starts = instances.stacked([instances.factored(i, m=2) for i in range(3)])
    run = descent.train_batch(starts, instances.problems(3), optimizer=descent.relative(SEPARATE), steps=5)
    one = descent.train(
        instances.lane(starts, 1),
        instances.lane(instances.problems(3), 1),
        optimizer=descent.relative(SEPARATE),
        steps=5,
    )
    assert_close(matrix(run.weights)[1], matrix(one.weights), rtol=1e-12)


@pytest.mark.parametrize("pace", [descent.falling, descent.relative])
def test_the_gradient_that_is_given_is_that_of_the_rule(pace):
    given = {descent.gd(0.1): gradients.gradient, SEPARATE: gradients.direction, PENALIZED: gradients.exact}
    for rule, expected in given.items():
        assert training.rule_of(pace(rule)) is expected
        assert isinstance(engines.cheapest(pace(rule).update, jnp.eye(5), instances.problem()), engines.Direct)


def test_what_cannot_be_paced_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^optimizer: expected one that moves along the gradient, .* found "):
        descent.falling(optax.adam(0.1))
    with pytest.raises(ValueError, match=r"^optimizer: expected one that moves along the gradient"):
        descent.relative(descent.falling(SEPARATE))
    for power in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"^power: expected a number above 0 and at most 1, found"):
            descent.falling(SEPARATE, power)


def test_weights_and_texts_that_keep_no_length_refuse_paced_steps(text):
    problem = instances.problem()
    spanned = Spanned(jnp.zeros_like(problem.Z), problem.Z)
    with pytest.raises(ValueError, match=r"^optimizer: expected one that moves Spanned weights"):
        descent.train(spanned, problem, optimizer=descent.falling(SEPARATE), steps=2)
    with pytest.raises(ValueError, match=r"^optimizer: expected one that moves W along its gradient"):
        language.train(text, optimizer=descent.relative(SEPARATE), steps=2)


@pytest.fixture
def text():
    return data.language(jax.random.key(0), m=3, n=4, d=6, V=5, entropy=0.2)
