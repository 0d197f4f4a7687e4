"""Where a run stalls: rounding errors, floor and penalty, each found; and the rules that never do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, heads, losses, metrics
from jaxattn.descent import gradients, stalling
from tests import instances

pytestmark = pytest.mark.compiled

STEPS = 3000
PROBLEMS = instances.problems(8)
STARTS = {
    "free": instances.stacked([instances.free(i) for i in range(8)]),
    "factored": instances.stacked([instances.factored(i, 2) for i in range(8)]),
}


def trained(kind, rule, steps=STEPS, snapshots=(), record_every=1):
    return descent.train_batch(
        STARTS[kind], PROBLEMS, optimizer=rule, steps=steps, snapshots=snapshots, record_every=record_every
    )


def of_logits(rule, weights, problem):
    read = gradients.reading(problem, heads.linear)
    return rule(jnp.asarray(0), attention.logits(weights, problem), problem.Y, read, losses.logistic)


@pytest.mark.parametrize("kind", STARTS)
def test_the_published_rule_stalls_and_says_where(kind):
    run = trained(kind, descent.normalized_gd(0.1), snapshots=range(0, STEPS + 1, 100))
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


@pytest.mark.parametrize("kind", ["free", pytest.param("factored", marks=pytest.mark.slow)])
def test_the_exact_rule_never_does(kind):
    run = trained(kind, descent.normalized_gd(0.1, floor=0.0, penalty=0.0))
    np.testing.assert_array_equal(run.stalled, stalling.NEVER)
    assert run.gradient_norm.min() < 1e-30


def test_a_run_that_has_not_come_so_far_says_so():
    run = trained("free", descent.normalized_gd(0.1), steps=100)
    np.testing.assert_array_equal(run.stalled, stalling.NEVER)
    assert run.gradient_norm.min() > 1e-12


@pytest.mark.slow
def test_a_lane_and_fewer_entries_tell_the_same_step():
    run = trained("factored", descent.normalized_gd(0.1), steps=400)
    some = trained("factored", descent.normalized_gd(0.1), steps=400, record_every=20)
    np.testing.assert_array_less(run.stalled - 1, some.stalled)
    assert (some.stalled % 20 == 0).all()
    # Rounding decides when the balance is met to within a half.
    lone = descent.train(instances.lane(STARTS["factored"], 0), instances.lane(PROBLEMS, 0), steps=400)
    assert abs(int(lone.stalled) - run.stalled[0]) <= 1


@pytest.mark.parametrize("scale", [30.0, 300.0])
@pytest.mark.parametrize("kind", STARTS)
def test_rounding_errors_are_as_long_as_estimated(kind, scale):
    factor = scale**0.5 if kind == "factored" else scale

    def ratio(weights, problem):
        weights = jax.tree.map(lambda leaf: leaf * factor, weights)
        published, right = (
            of_logits(rule, weights, problem).coefficients for rule in (gradients.gradient, gradients.exact)
        )
        return metrics.norm(published - right) / metrics.norm(
            of_logits(gradients.errors, weights, problem).coefficients
        )

    ratios = jax.jit(jax.vmap(ratio))(STARTS[kind], PROBLEMS)
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
    assert stalling.added(weights, descent.gd(0.1).init(weights), descent.gd(0.1).update) == 0
    assert stalling.added(weights, optax.adam(0.1).init(weights), optax.adam(0.1).update) == 0


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


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (descent.normalized_gd(0.1), "descent.normalized_gd(step, floor=0, penalty=0)"),
        (descent.exact_normalized_gd(0.1), "descent.normalized_gd(step, floor=0, penalty=0)"),
        (descent.gd(0.1), "descent.normalized_gd(step, floor=0, penalty=0)"),
        (descent.jointly_normalized_gd(0.1), "descent.jointly_normalized_gd(step, floor=0, penalty=0)"),
        (descent.falling(descent.normalized_gd(0.1)), "descent.normalized_gd(step, floor=0, penalty=0)"),
        (optax.adam(0.1), "descent.ScaleFree(*optimizer), if it is blind to the gradient's scale,"),
    ],
)
def test_the_rule_that_goes_on_is_named(rule, expected):
    assert stalling.going_on(rule.update) == expected


def test_the_rules_that_are_named_never_stall():
    named = tuple(make(0.1, floor=0.0, penalty=0.0) for make in (descent.jointly_normalized_gd, descent.normalized_gd))
    assert all(isinstance(rule, descent.ScaleFree) for rule in named)
    assert all(isinstance(descent.falling(rule), descent.ScaleFree) for rule in named)
