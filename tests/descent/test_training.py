"""Training runs: what is recorded when, lifting, precision, compilation, and arguments out of range."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, descent, losses, metrics
from jaxattn.attention import Factored
from jaxattn.descent.training import outline
from tests import instances
from tests.instances import assert_close, d

pytestmark = pytest.mark.compiled

STEPS = 8
WEIGHTS = {"free": instances.free(), "factored": instances.factored(m=2)}
gradient_of = jax.jit(jax.grad(losses.risk))


def single(tree):
    return jax.tree.map(lambda leaf: leaf.astype(np.float32), tree)


@pytest.fixture(scope="module", params=WEIGHTS)
def run(request):
    """A run that keeps the weights before and after every update."""
    weights = WEIGHTS[request.param]
    return descent.train(weights, instances.problem(), steps=STEPS, snapshots=range(STEPS + 1))


def test_snapshot_k_is_the_weights_after_k_updates(run):
    assert_close(instances.lane(run.snapshots, 0), WEIGHTS["factored" if isinstance(run.weights, Factored) else "free"])
    assert_close(instances.lane(run.snapshots, STEPS), run.weights, rtol=0)
    for k in range(STEPS):
        now = instances.lane(run.snapshots, k)
        moved = jax.tree.map(lambda w, g: w - 0.1 * g / np.linalg.norm(g), now, gradient_of(now, instances.problem()))
        assert_close(instances.lane(run.snapshots, k + 1), moved)


def test_the_series_are_read_before_the_update(run):
    assert run.loss.shape == run.probability.shape == run.gradient_norm.shape == (STEPS,)
    for k in range(STEPS):
        now = instances.lane(run.snapshots, k)
        risk, probabilities = losses.risk_and_probabilities(now, instances.problem())
        assert_close(run.loss[k], risk)
        assert_close(run.probability[k], np.mean(np.max(probabilities, axis=1)))
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient_of(now, instances.problem()))])
        assert_close(run.gradient_norm[k], np.linalg.norm(flat))


@pytest.mark.parametrize("snapshots", [(), (2, 5), (0, STEPS)])
def test_keeping_snapshots_changes_nothing_else(run, snapshots):
    again = descent.train(instances.lane(run.snapshots, 0), instances.problem(), steps=STEPS, snapshots=snapshots)
    assert_close(again.weights, run.weights)
    assert_close(again.loss, run.loss)
    assert_close(again.snapshots, jax.tree.map(lambda leaf: leaf[np.array(snapshots, int)], run.snapshots))


@pytest.mark.parametrize("kind", [pytest.param("free", marks=pytest.mark.slow), "factored"])
def test_a_lane_is_a_lone_run(kind):
    many = instances.problems(3)
    start = {"free": instances.free, "factored": lambda i: instances.factored(i, 2)}[kind]
    starts = instances.stacked([start(i) for i in range(3)])
    runs = jax.vmap(lambda w, p: descent.train(w, p, steps=STEPS, snapshots=(2, 5)))(starts, many)
    for i in range(3):
        lone = descent.train(instances.lane(starts, i), instances.lane(many, i), steps=STEPS, snapshots=(2, 5))
        assert_close(instances.lane(runs, i), lone)


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_lane_of_train_batch_is_a_lone_run_whatever_the_chunk(chunk):
    many, starts = instances.problems(3), instances.stacked([instances.free(i) for i in range(3)])
    runs = descent.train_batch(starts, many, steps=STEPS, snapshots=(2, 5), chunk=chunk)
    for i in range(3):
        lone = descent.train(instances.lane(starts, i), instances.lane(many, i), steps=STEPS, snapshots=(2, 5))
        assert_close(instances.lane(runs, i), lone)


def test_train_works_under_jit():
    W, problem = instances.free(), instances.problem()
    lifted = jax.jit(lambda w: descent.train(w, problem, steps=STEPS))(W)
    assert_close(lifted, descent.train(W, problem, steps=STEPS))


@pytest.mark.parametrize("kind", ["free", pytest.param("factored", marks=pytest.mark.slow)])
def test_gd_is_the_sgd_of_optax(kind):
    ours, theirs = (
        descent.train(WEIGHTS[kind], instances.problem(), optimizer=rule, steps=STEPS)
        for rule in (descent.gd(0.3), optax.sgd(0.3))
    )
    assert_close(ours, theirs)


def test_an_optimizer_with_memory_is_carried_through_the_run():
    W, problem, rule = instances.free(), instances.problem(), optax.adam(0.05)
    run = descent.train(W, problem, optimizer=rule, steps=STEPS, snapshots=(4,))
    state = rule.init(W)
    for _ in range(STEPS):
        updates, state = rule.update(gradient_of(W, problem), state, W)
        W = optax.apply_updates(W, updates)
    assert_close(run.weights, W)


def test_small_steps_of_gd_lower_the_risk_at_every_step():
    run = descent.train(instances.free(), instances.problem(), optimizer=descent.gd(0.05), steps=STEPS)
    assert np.all(np.diff(run.loss) < 0)


def test_loss_and_head_reach_the_gradient():
    W, problem = instances.free(), instances.problem()
    run = descent.train(W, problem, optimizer=descent.gd(1.0), steps=1, loss=losses.correlation_loss)
    assert_close(run.weights, W - jax.grad(lambda w: losses.risk(w, problem, loss=losses.correlation_loss))(W))

    def away(x, v):
        return -jnp.vdot(v, x)

    turned = descent.train(W, problem, optimizer=descent.gd(1.0), steps=1, loss=losses.correlation_loss, head=away)
    assert_close(attention.matrix(turned.weights) - W, W - attention.matrix(run.weights), rtol=1e-10)


def test_other_numbers_and_snapshot_steps_compile_nothing_again():
    traced = []

    def loss(margin):
        traced.append(margin)
        return jnp.exp(-margin)

    def train(rule, snapshots):
        descent.train(instances.free(), instances.problem(), optimizer=rule, steps=5, snapshots=snapshots, loss=loss)

    train(descent.gd(0.1), (1, 2))
    first = len(traced)
    assert first > 0
    train(descent.gd(0.7), (0, 5))
    assert len(traced) == first
    train(descent.normalized_gd(0.1), (1, 2))
    second = len(traced)
    assert second > first
    train(descent.normalized_gd(0.2, floor=0.0, penalty=0.3), (3, 4))
    assert len(traced) == second


@pytest.mark.parametrize("kind", WEIGHTS)
def test_single_precision_follows_double(kind):
    double = descent.train(WEIGHTS[kind], instances.problem(), steps=STEPS, snapshots=(2,))
    run = descent.train(single(WEIGHTS[kind]), single(instances.problem()), steps=STEPS, snapshots=(2,))
    counts = {"stalled", "snapshot_steps"}
    numbers = {name: leaf for name, leaf in run._asdict().items() if name not in counts}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(numbers)} == {"float32"}
    assert all(np.issubdtype(getattr(run, name).dtype, np.integer) for name in counts)
    np.testing.assert_array_equal(run.snapshot_steps, [2])
    assert_close(run, double, rtol=1e-5)


def test_single_precision_is_the_same_while_x64_is_off():
    start, problem = single(WEIGHTS["factored"]), single(instances.problem())
    run = descent.train(start, problem, steps=STEPS, snapshots=(2,))
    with jax.enable_x64(False):
        alone = descent.train(start, problem, steps=STEPS, snapshots=(2,))
    assert_close(alone, run, rtol=1e-6)


def test_normalized_steps_move_each_matrix_by_the_step_size():
    start = WEIGHTS["factored"]
    run = descent.train(start, instances.problem(), optimizer=descent.normalized_gd(0.25), steps=1)
    for before, after in zip(start, run.weights, strict=True):
        assert_close(metrics.norm(after - before), 0.25)


def test_the_penalty_is_added_to_the_gradient_of_factors_and_never_of_a_free_matrix():
    problem, rule = instances.problem(), descent.normalized_gd(0.1, floor=0.0, penalty=3.0)
    start = WEIGHTS["factored"]
    slope = jax.grad(lambda w: losses.risk(w, problem) + 3.0 * (jnp.sum(w.K**2) + jnp.sum(w.Q**2)))(start)
    expected = jax.tree.map(lambda w, g: w - 0.1 * g / jnp.linalg.norm(g), start, slope)
    assert_close(descent.train(start, problem, optimizer=rule, steps=1).weights, expected)
    plain = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    free = (descent.train(WEIGHTS["free"], problem, optimizer=either, steps=1).weights for either in (rule, plain))
    # One is given the gradient, the other its direction: the same but for rounding.
    assert_close(next(free), next(free), rtol=1e-13)


@pytest.mark.parametrize("size", [1e200, 1.0, 1e-200, 1e-300, 1e-307])
def test_without_a_floor_a_gradient_of_any_size_gives_a_full_step(size):
    direction = np.array([[0.6, 0.0], [0.0, -0.8]])
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    W = jnp.zeros((2, 2))
    step, _ = rule.update(jnp.asarray(size * direction), rule.init(W), W)
    assert_close(step, -0.1 * direction, rtol=1e-10)


def test_with_the_published_floor_a_tiny_gradient_gives_next_to_no_step():
    rule, W = descent.normalized_gd(0.1), jnp.zeros((2, 2))
    step, _ = rule.update(jnp.full((2, 2), 1e-30), rule.init(W), W)
    assert 0 < np.linalg.norm(np.asarray(step)) < 1e-14


@pytest.mark.parametrize("floor", [0.0, descent.PUBLISHED_EPSILON])
def test_a_zero_gradient_gives_no_step(floor):
    # Attention saturated to the last bit: the gradient of the risk is exactly zero.
    W = 1e6 * instances.free()
    run = descent.train(W, instances.problem(), optimizer=descent.normalized_gd(0.1, floor=floor), steps=STEPS)
    np.testing.assert_array_equal(run.gradient_norm, 0)
    np.testing.assert_array_equal(run.weights, W)


@pytest.mark.parametrize("step_size", [0.0, -0.1, np.nan, np.inf])
@pytest.mark.parametrize("rule", [descent.gd, descent.normalized_gd])
def test_a_step_size_that_is_not_positive_and_finite_is_refused(rule, step_size):
    with pytest.raises(ValueError, match=rf"^step_size: expected a positive finite number, found {step_size}"):
        rule(step_size)


@pytest.mark.parametrize("name", ["floor", "penalty"])
@pytest.mark.parametrize("number", [-1e-16, np.nan, np.inf])
def test_a_floor_or_penalty_out_of_range_is_refused(name, number):
    with pytest.raises(ValueError, match=rf"^{name}: expected a finite number of at least 0, found {number}"):
        descent.normalized_gd(0.1, **{name: number})


@pytest.mark.parametrize("steps", [0, -3])
def test_fewer_than_one_step_is_refused(steps):
    with pytest.raises(ValueError, match=rf"^steps: expected at least 1, found {steps}"):
        descent.train(instances.free(), instances.problem(), steps=steps)


@pytest.mark.parametrize("snapshots", [(6,), (-1, 2), (2, 2), (3, 1)])
def test_snapshots_out_of_order_or_range_are_refused(snapshots):
    with pytest.raises(ValueError, match=r"^snapshots: expected increasing steps within 0\.\.5, found"):
        descent.train(instances.free(), instances.problem(), steps=5, snapshots=snapshots)


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"^W: expected shape \(5, 5\)"):
        descent.train(jnp.zeros((d, d + 1)), instances.problem())
    with pytest.raises(ValueError, match=r"^W: expected dtype float64"):
        descent.train(single(instances.free()), instances.problem())
    with pytest.raises(ValueError, match=r"^W: expected shape \(5, 5\)"):
        descent.train_batch(jnp.zeros((2, d, d + 1)), instances.problems(2))


def test_batches_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^batch: expected one leading axis of one length"):
        descent.train_batch(jnp.zeros((2, d, d)), instances.problems(3), steps=STEPS)


def test_the_outline_of_a_run_has_its_shapes_and_types():
    asked = {"steps": STEPS, "snapshots": (1, 5), "record_every": 3}
    for weights in WEIGHTS.values():
        told = outline(weights, instances.problem(), **asked)
        made = descent.train(weights, instances.problem(), **asked)
        assert jax.tree.structure(told) == jax.tree.structure(made)
        assert [(a.shape, a.dtype) for a in jax.tree.leaves(told)] == [
            (a.shape, a.dtype) for a in jax.tree.leaves(made)
        ]
