"""Where a run stalls: rounding errors, floor and penalty, each found; and the rules that never do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, heads, losses, metrics
from jaxattn.descent import gradients, stalling
from tests import instances
from tests.descent.cases import SCALE_FREE
from tests.instances import slow

pytestmark = pytest.mark.compiled

STEPS = 3000
PROBLEMS = instances.problems(8)
STARTS = {
    "free": instances.stacked([instances.free(i) for i in range(8)]),
    "factored": instances.stacked([instances.factored(i, 2) for i in range(8)]),
}
PUBLISHED = descent.normalized_gd(0.1)


def trained(kind, rule, steps=STEPS, **given):
    kept: Any = range(0, STEPS + 1, 100) if steps == STEPS else ()
    return descent.train_batch(STARTS[kind], PROBLEMS, optimizer=rule, steps=steps, snapshots=kept, **given)


@pytest.mark.parametrize("kind", STARTS)
def test_the_published_rule_stalls_and_says_where(kind):
    run = trained(kind, PUBLISHED)
    assert run.stalled.shape == (8,)
    assert (run.stalled > 50).all()
    assert (run.stalled < 2500).all()
    norms = np.linalg.norm(jax.vmap(jax.vmap(attention.matrix))(run.snapshots), axis=(2, 3))
    for i, step in enumerate(run.stalled):
        assert run.gradient_norm[i, :step].min() > 2 * descent.PUBLISHED_EPSILON
        # W grows by a step of 0.1 until then, and K Q^T by more; soon after it hardly grows, or is lost by drifting.
        grown = np.diff(norms[i])
        before, after = grown[: max(step // 100, 1)], grown[step // 100 + 5 :]
        assert before.min() > 5
        assert after.max() < 0.1 * before.max()


@pytest.mark.parametrize("kind", ["free", slow("factored")])
def test_the_exact_rule_never_does(kind):
    run = trained(kind, SCALE_FREE)
    np.testing.assert_array_equal(run.stalled, stalling.NEVER)
    assert run.gradient_norm.min() < 1e-30


@pytest.mark.slow
def test_a_lane_and_fewer_entries_tell_the_same_step():
    run, some = (trained("factored", PUBLISHED, steps=400, record_every=every) for every in (1, 20))
    np.testing.assert_array_less(run.stalled - 1, some.stalled)
    assert (some.stalled % 20 == 0).all()
    # Rounding decides when the balance is met to within a half.
    lone = descent.train(instances.lane(STARTS["factored"], 0), instances.lane(PROBLEMS, 0), steps=400)
    assert abs(int(lone.stalled) - run.stalled[0]) <= 1


@pytest.mark.parametrize("kind", STARTS)
def test_rounding_errors_are_as_long_as_estimated(kind):
    @jax.jit
    @jax.vmap
    def ratio(weights, problem):
        read = gradients.reading(problem, heads.linear)
        published, right, errors = (
            rule(jnp.asarray(0), attention.logits(weights, problem), problem.Y, read, losses.logistic).coefficients
            for rule in (gradients.gradient, gradients.exact, gradients.errors)
        )
        return metrics.norm(published - right) / metrics.norm(errors)

    for scale in (30.0, 300.0):
        factor = scale**0.5 if kind == "factored" else scale
        ratios = ratio(jax.tree.map(lambda leaf, factor=factor: leaf * factor, STARTS[kind]), PROBLEMS)
        assert ratios.max() < 1
        assert ratios.max() > 0.25


@pytest.mark.parametrize("kind", STARTS)
def test_floor_and_penalty_count(kind):
    weights = instances.lane(STARTS[kind], 0)
    length = float(jnp.sqrt(sum(metrics.norm(leaf) ** 2 for leaf in jax.tree.leaves(weights))))
    expected = 0.5 + (2e-3 * length if kind == "factored" else 0.0)
    for rule in (descent.exact_normalized_gd, descent.jointly_normalized_gd):
        optimizer = rule(0.1, floor=0.5, penalty=1e-3)
        for one in (optimizer, descent.falling(optimizer)):
            np.testing.assert_allclose(stalling.added(weights, one.init(weights), one.update), expected, rtol=1e-14)
    for one in (descent.gd(0.1), optax.adam(0.1)):
        assert stalling.added(weights, one.init(weights), one.update) == 0


def test_an_optimizer_of_optax_that_is_given_the_published_gradient_stalls_too():
    rule, problem = optax.sign_sgd(0.1), instances.problem()
    run, exact = (
        descent.train(instances.free(), problem, optimizer=one, steps=1000) for one in (rule, descent.Exact(*rule))
    )
    assert run.stalled > 50
    assert exact.stalled == stalling.NEVER
    assert exact.gradient_norm[-1] < 1e-25


def test_a_gradient_that_has_underflowed_is_lost():
    W = 1e6 * instances.free()
    run = descent.train(W, instances.problem(), optimizer=descent.Exact(*descent.gd(0.1)), steps=8)
    assert run.gradient_norm[0] == 0
    assert run.stalled == 0
    np.testing.assert_array_equal(run.weights, W)


def test_the_rule_that_goes_on_is_named_and_never_stalls():
    gd, joint = (
        "descent.normalized_gd(step, floor=0, penalty=0)",
        "descent.jointly_normalized_gd(step, floor=0, penalty=0)",
    )
    for rule in (PUBLISHED, descent.exact_normalized_gd(0.1), descent.gd(0.1), descent.falling(PUBLISHED)):
        assert stalling.going_on(rule.update) == gd
    assert stalling.going_on(descent.jointly_normalized_gd(0.1).update) == joint
    expected = "descent.ScaleFree(*optimizer), if it is blind to the gradient's scale,"
    assert stalling.going_on(optax.adam(0.1).update) == expected
    named = tuple(make(0.1, floor=0.0, penalty=0.0) for make in (descent.jointly_normalized_gd, descent.normalized_gd))
    assert all(isinstance(one, descent.ScaleFree) for rule in named for one in (rule, descent.falling(rule)))
