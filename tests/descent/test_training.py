"""Training runs: what is kept and recorded when, lifting, precision, compilation, and what a run says of itself."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, losses, models
from jaxattn.descent.training import outline
from tests import instances
from tests.descent.cases import STEPS, reference
from tests.instances import assert_close, d, single, slow

pytestmark = pytest.mark.compiled

WEIGHTS = {"free": instances.free(), "factored": instances.factored(m=2)}
RULE = descent.normalized_gd(0.1)
gradient_of = jax.jit(jax.grad(losses.risk), static_argnames="loss")


@cache
def run_of(kind, snapshots=tuple(range(STEPS + 1))) -> Any:
    """A run that by default keeps the weights before and after every update."""
    return descent.train(WEIGHTS[kind], instances.problem(), steps=STEPS, snapshots=snapshots)


@pytest.mark.parametrize("make", [optax.sgd, descent.normalized_gd])
def test_the_derivative_with_respect_to_a_step_size_is_that_of_differences(make):
    def loss(step):
        return descent.train(WEIGHTS["free"], instances.problem(), optimizer=make(step), steps=STEPS).loss[-1]

    slope = jax.jvp(loss, (0.1,), (1.0,))[1]
    np.testing.assert_allclose(slope, (loss(0.1 + 1e-5) - loss(0.1 - 1e-5)) / 2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_snapshots_are_taken_after_and_series_read_before_the_updates(kind):
    run, problem = run_of(kind), instances.problem()
    assert_close(run.snapshots, instances.stacked(reference(RULE, WEIGHTS[kind], problem)), rtol=1e-10)
    assert_close(instances.lane(run.snapshots, STEPS), run.weights, rtol=0)
    assert run.loss.shape == run.probability.shape == run.gradient_norm.shape == (STEPS,)
    for k in range(STEPS):
        now = instances.lane(run.snapshots, k)
        risk, probabilities = losses.risk_and_probabilities(now, problem)
        assert_close(run.loss[k], risk)
        assert_close(run.probability[k], np.mean(np.max(probabilities, axis=1)))
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient_of(now, problem))])
        assert_close(run.gradient_norm[k], np.linalg.norm(flat))
    # It has not come so far that it stalls.
    assert int(run.stalled) == -1


@pytest.mark.parametrize("kind", ["free", slow("factored")])
def test_keeping_snapshots_or_fewer_entries_changes_nothing_else(kind):
    run = run_of(kind)
    again = run_of(kind, (2, STEPS))
    assert_close((again.weights, again.loss), (run.weights, run.loss))
    assert_close(again.snapshots, jax.tree.map(lambda leaf: leaf[np.array([2, STEPS])], run.snapshots))
    np.testing.assert_array_equal(again.snapshot_steps, (2, STEPS))
    noted = descent.train(WEIGHTS[kind], instances.problem(), steps=STEPS, record_every=3)
    assert_close(noted.weights, run.weights)
    for name in ("loss", "probability", "gradient_norm"):
        assert_close(getattr(noted, name), getattr(run, name)[::3])


@pytest.mark.parametrize("kind", ["free", slow("factored")])
def test_it_works_under_jit_and_vmap_and_in_batches_of_any_chunk(kind):
    many = instances.problems(3)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, 2 * leaf]), WEIGHTS[kind])

    def train(W, problem):
        return descent.train(W, problem, steps=STEPS, snapshots=(2, STEPS))

    lifted = jax.jit(jax.vmap(train))(starts, many)
    chunked = descent.train_batch(starts, many, steps=STEPS, snapshots=(2, STEPS), chunk=2)
    for i in range(3):
        alone = train(instances.lane(starts, i), instances.lane(many, i))
        for runs in (lifted, chunked):
            assert_close(instances.lane(runs, i), alone)
    # The rule passes beside the arrays.
    assert lifted.rule == chunked.rule == train(WEIGHTS[kind], instances.problem()).rule
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(lifted))


@pytest.mark.parametrize("lift", [jax.jit, jax.vmap])
def test_weights_and_problem_may_be_no_arguments_of_a_traced_function(lift):
    W, problem = instances.free(), instances.problem()

    def train(rates):
        return descent.train(W, problem, steps=STEPS, optimizer=descent.gd(jnp.sum(rates))).weights

    found = lift(train)(jnp.array([0.1]))
    assert_close(found if lift is jax.jit else found[0], train(jnp.array([0.1])))


def test_loss_and_head_reach_the_gradient():
    W, problem = instances.free(), instances.problem()
    given = {"optimizer": descent.gd(1.0), "steps": 1, "loss": losses.correlation_loss}
    run = descent.train(W, problem, **given)
    assert_close(run.weights, W - gradient_of(W, problem, loss=losses.correlation_loss))
    turned = descent.train(W, problem, **given, head=lambda x, v: -jnp.vdot(v, x))
    assert_close(attention.matrix(turned.weights) - W, W - attention.matrix(run.weights), rtol=1e-10)


def test_small_steps_of_gd_lower_the_risk_at_every_step():
    run = descent.train(instances.free(), instances.problem(), optimizer=descent.gd(0.05), steps=STEPS)
    assert np.all(np.diff(run.loss) < 0)


def test_other_numbers_and_snapshot_steps_compile_nothing_again():
    traced = []

    def loss(margin):
        traced.append(margin)
        return jnp.exp(-margin)

    def train(rule, snapshots):
        descent.train(instances.free(), instances.problem(), optimizer=rule, steps=5, snapshots=snapshots, loss=loss)
        return len(traced)

    first = train(descent.gd(0.1), (1, 2))
    assert 0 < first == train(descent.gd(0.7), (0, 5))
    second = train(RULE, (1, 2))
    assert first < second == train(descent.normalized_gd(0.2, floor=0.0, penalty=0.3), (3, 4))


@pytest.mark.parametrize("kind", WEIGHTS)
def test_single_precision_follows_double_also_while_x64_is_off(kind):
    double = run_of(kind, (2, STEPS))
    start, problem = single(WEIGHTS[kind]), single(instances.problem())
    run = descent.train(start, problem, steps=STEPS, snapshots=(2, STEPS))
    counts = {"stalled", "snapshot_steps"}
    numbers = {name: leaf for name, leaf in run._asdict().items() if name not in counts}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(numbers)} == {"float32"}
    assert all(np.issubdtype(getattr(run, name).dtype, np.integer) for name in counts)
    assert_close(run, double, rtol=1e-5)
    if kind == "factored":
        with jax.enable_x64(False):
            alone = descent.train(start, problem, steps=STEPS, snapshots=(2, STEPS))
        assert_close(alone, run, rtol=1e-6)


def test_the_outline_of_a_run_has_its_shapes_and_types():
    given = {"steps": STEPS, "snapshots": (1, 5), "record_every": 3}
    for weights in WEIGHTS.values():
        told = outline(weights, instances.problem(), **given)
        made = jax.eval_shape(lambda W: descent.train(W, instances.problem(), **given), weights)
        assert jax.tree.structure(told) == jax.tree.structure(made)
        for one, other in zip(jax.tree.leaves(told), jax.tree.leaves(made), strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)


# The rule of a run.
START = jnp.zeros((d, d))


def rule_of(**given) -> descent.Rule:
    rule = outline(START, instances.problem(), steps=2, **given).rule
    assert rule is not None
    return rule


def test_a_run_names_what_it_was_trained_by():
    optimizer, model = optax.adam(0.1), models.rotary()
    given: Any = {"optimizer": optimizer, "loss": losses.exponential, "model": model, "noise": descent.full_batch}
    rule = rule_of(**given)
    assert rule.optimizer is optimizer
    assert (rule.steps, rule.record_every, rule.loss, rule.model) == (2, 1, losses.exponential, model)
    assert jax.eval_shape(lambda W: descent.train(W, instances.problem(), steps=2, **given), START).rule == rule
    # A function compiled of a run is not taken for that of another rule.
    steps_of = jax.jit(lambda run: jnp.asarray(run.rule.steps))
    assert [int(steps_of(outline(START, instances.problem(), steps=steps))) for steps in (2, 3)] == [2, 3]


def test_rules_are_equal_where_their_parts_are():
    alike = [rule_of(optimizer=descent.normalized_gd(step)) for step in (0.1, np.float64(0.1))]
    assert len({rule_of(), *alike}) == 1
    gd = descent.gd(0.1)
    others = [rule_of(optimizer=one) for one in (gd, descent.Exact(*gd), descent.gd(0.2))]
    others += [rule_of(loss=losses.exponential), rule_of(model=models.temperature(2.0))]
    assert len({*others, rule_of()}) == 6


def test_runs_by_one_rule_are_stacked_and_others_without_it():
    first, again, other = (
        outline(START, instances.problem(), steps=2, optimizer=descent.gd(step)) for step in (0.1, 0.1, 0.2)
    )
    stacked = instances.stacked([first, again])
    assert stacked.rule == first.rule
    assert stacked.weights.shape == (2, *START.shape)
    with pytest.raises(ValueError, match="Rule"):
        instances.stacked([first, other])
    assert instances.stacked([first._replace(rule=None), other._replace(rule=None)]).rule is None
