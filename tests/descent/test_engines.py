"""Engines: one trajectory, whatever is kept between steps; and which is chosen."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, data, descent, heads, initial, losses, metrics, svm, tokens
from jaxattn.attention import Factored, Spanned, matrix
from jaxattn.descent import engines, gradients, keys, loops, spans, training
from jaxattn.descent.optimizers import length_of
from tests import instances
from tests.instances import assert_close

pytestmark = pytest.mark.compiled

SNAPSHOTS = jnp.array([0, 1, 10, 100, 500])
ALONG = [spans.Queries, spans.Gram]
OPTIMIZERS = {
    "published": descent.normalized_gd(0.1),
    "scale-free": descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
    "exact": descent.exact_normalized_gd(0.1, floor=1e-16),
    "jointly": descent.jointly_normalized_gd(0.1, floor=1e-16),
    "plain": descent.gd(0.3),
}


def quadratic(x, v):
    return v @ x - 0.3 * (x @ x)


def run(engine, optimizer, W, problem, head=heads.linear):
    rule = training.rule_of(optimizer)
    train = loops.trainer(optimizer.update, 500, 1, losses.logistic, head, rule, engine(optimizer.update))
    return train(W, problem, optimizer.init(W), None, SNAPSHOTS)


@pytest.mark.parametrize("engine", ALONG)
@pytest.mark.parametrize(
    ("head", "name"),
    # A head changes the gradient at the logits alone: here what is given is its direction, and itself.
    [*((heads.linear, name) for name in OPTIMIZERS), (quadratic, "scale-free"), (quadratic, "plain")],
)
def test_the_trajectory_is_that_of_the_weights_themselves(engine, name, head):
    W, problem = instances.free(), instances.problem()
    direct = run(engines.Direct, OPTIMIZERS[name], W, problem, head)
    found = run(engine, OPTIMIZERS[name], W, problem, head)
    # The gradient as published has an absolute error of 1e-16, whose sum over an input's tokens differs from zero and
    # which is all that is left of it after some hundreds of steps: until then only are its runs one run.
    until = 100 if name == "published" else 500
    for k, step in enumerate(SNAPSHOTS):
        if step <= until:
            apart = metrics.norm(found.snapshots[k] - direct.snapshots[k]) / metrics.norm(direct.snapshots[k])
            assert apart < 1e-10, int(step)
    assert_close(found.probability[:until], direct.probability[:until], rtol=1e-10)
    assert_close(found.loss[:until], direct.loss[:until], rtol=1e-10)
    assert_close(found.gradient_norm[:until], direct.gradient_norm[:until], rtol=1e-8)


def apart(found, direct):
    """How far two pytrees of weights are from each other, relative to the second."""
    return max(
        float(metrics.norm(a - b) / metrics.norm(b))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(direct), strict=True)
    )


@pytest.mark.parametrize("name", [*OPTIMIZERS, "penalized", "penalized jointly"])
# Of the 20 columns no more than n T are kept.
@pytest.mark.parametrize("m", [2, pytest.param(5, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)])
def test_the_trajectory_is_that_of_the_factors_themselves(name, m):
    penalized = {
        "penalized": descent.exact_normalized_gd(0.1, penalty=0.01),
        "penalized jointly": descent.jointly_normalized_gd(0.1, penalty=0.01),
    }
    optimizer = (OPTIMIZERS | penalized)[name]
    start, problem = instances.factored(m=m), instances.problem()
    direct, found = (run(engine, optimizer, start, problem) for engine in (engines.Direct, keys.Keys))
    # A last digit grows by some orders of magnitude in some hundred steps; the gradient as published errs by 1e-16,
    # which is much of it by then.
    until = 10 if name == "published" else 100
    for k, step in enumerate(SNAPSHOTS):
        if step <= until:
            one, other = (instances.lane(each.snapshots, k) for each in (found, direct))
            assert apart(one, other) < 1e-9, int(step)
    assert_close(found.probability[:until], direct.probability[:until], rtol=1e-9)
    assert_close(found.loss[:until], direct.loss[:until], rtol=1e-9)
    assert_close(found.gradient_norm[:until], direct.gradient_norm[:until], rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("m", [5, 20])
def test_keys_in_a_batch_are_those_of_each_seed(m):
    problems, optimizer = instances.problems(3), OPTIMIZERS["exact"]
    starts = instances.stacked([instances.factored(i, m) for i in range(3)])
    train = loops.trainer(
        optimizer.update, 50, 1, losses.logistic, heads.linear, gradients.exact, keys.Keys(optimizer.update)
    )
    lanes = jax.vmap(train, in_axes=(0, 0, None, None, None))(
        starts, problems, optimizer.init(starts), None, SNAPSHOTS[:2]
    )
    for i in range(3):
        lane = (instances.lane(starts, i), instances.lane(problems, i))
        one = train(*lane, optimizer.init(starts), None, SNAPSHOTS[:2])
        assert apart(instances.lane(lanes.weights, i), one.weights) < 1e-10
        assert apart(instances.lane(lanes.snapshots, i), one.snapshots) < 1e-10


@pytest.mark.parametrize("lanes", [(), (3,)])
def test_coordinates_of_rows_are_those_of_an_orthonormal_basis(lanes):
    rows = np.random.default_rng(0).normal(size=(6, 20, *lanes))
    rows[2] = 0
    rows[4] = rows[0] - 2 * rows[1]
    rows[5] = rows[3] + 1e-9 * rows[5]
    found, basis = (
        np.moveaxis(np.asarray(one).reshape(6, -1, 3 if lanes else 1), -1, 0)
        for one in keys.coordinates(jnp.asarray(rows))
    )
    of_basis = basis @ basis.mT
    np.testing.assert_allclose(found @ basis, np.moveaxis(rows.reshape(6, 20, -1), -1, 0), atol=1e-14)
    # A row of zeros, or one of length 1.
    units = np.diagonal(of_basis, axis1=1, axis2=2).round()
    np.testing.assert_allclose(of_basis, units[:, :, None] * np.eye(6), atol=1e-14)
    assert (units[:, [0, 1, 3, 5]] == 1).all()
    assert (units[:, 2] == 0).all()


@pytest.mark.parametrize("d", [pytest.param(3, marks=pytest.mark.slow), 40])
def test_the_trajectory_is_the_same_for_few_and_many_dimensions(d):
    problem = data.sphere(jax.random.key(1), 3, 4, d)
    W = initial.free(jax.random.key(2), d)
    chosen = engines.Direct, *ALONG
    direct, *others = (matrix(run(one, OPTIMIZERS["scale-free"], W, problem).weights) for one in chosen)
    for other in others:
        assert metrics.norm(other - direct) < 1e-10 * metrics.norm(direct)


@pytest.mark.parametrize("engine", [engines.Direct, *ALONG])
def test_a_gradient_below_the_smallest_square_still_gives_a_full_step(engine):
    # The square of a coefficient of 1e-200 is zero in double precision.
    W, problem, rule = 6.5e4 * instances.free(), instances.problem(), descent.exact_normalized_gd(0.1, floor=1e-300)
    slope = descent.train(W, problem, optimizer=rule, steps=1).gradient_norm[0]
    assert 1e-290 < slope < 1e-165
    train = loops.trainer(rule.update, 1, 1, losses.logistic, heads.linear, gradients.exact, engine(rule.update))
    moved = matrix(train(W, problem, rule.init(W), None, jnp.zeros(0, int)).weights) - W
    np.testing.assert_allclose(metrics.norm(moved), 0.1, rtol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e-150, 1e-300, 1e-307, 1e200])
def test_the_length_of_any_size_is_found(size):
    found = length_of({"a": jnp.full((2, 3), size), "b": jnp.full(3, size)}, 0)
    np.testing.assert_allclose(found, 3 * size, rtol=1e-14)


@pytest.mark.parametrize(
    ("d", "expected"), [(2, spans.Queries), (10, spans.Queries), (40, spans.Gram), (1000, spans.Gram)]
)
def test_the_cheapest_engine_is_chosen(d, expected):
    problem = data.sphere(jax.random.key(0), n=6, T=8, d=d)
    W, update = jnp.zeros((d, d)), descent.gd(0.1).update
    assert isinstance(engines.cheapest(update, W, problem), expected)
    assert isinstance(engines.cheapest(optax.adam(0.1).update, W, problem), engines.Direct)
    factors = Factored(W, W)
    assert isinstance(engines.cheapest(update, factors, problem), engines.Direct if d < 40 else keys.Keys)
    assert isinstance(engines.cheapest(optax.adam(0.1).update, factors, problem), engines.Direct)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [descent.normalized_gd(0.1, 0.0, 0.0), optax.adam(0.1)], ids=["along", "adam"])
@pytest.mark.parametrize("kind", ["W", "KQ"])
def test_a_wide_lane_is_a_lone_run(kind, rule):
    """Wide steps are taken with the lanes in front, others with the lanes behind."""
    key, d, lanes = jax.random.key(5), 18, 3
    problems = jax.vmap(lambda key: data.sphere(key, n=3, T=7, d=d))(jax.random.split(key, lanes))
    start: Any = 0.1 * jax.random.normal(key, (lanes, d, d))
    start = start if kind == "W" else Factored(start, start.mT)
    first = instances.lane((start, problems), 0)
    assert engines.chosen(rule.update, *first)[1].is_wide
    given = {"optimizer": rule, "steps": 30, "snapshots": (3,)}
    together = descent.train_batch(start, problems, **given)
    mapped = jax.vmap(lambda W, problem: descent.train(W, problem, **given))(start, problems)
    for i in range(lanes):
        alone = descent.train(instances.lane(start, i), instances.lane(problems, i), **given)
        assert_close(instances.lane(together, i), alone, rtol=1e-9)
        assert_close(instances.lane(mapped, i), alone, rtol=1e-9)


@pytest.mark.slow
def test_spanned_weights_are_the_matrix_they_stand_for():
    problem = data.sphere(jax.random.key(3), 3, 4, 40)
    B = 0.1 * jax.random.normal(jax.random.key(4), problem.Z.shape)
    start, other = Spanned(B, problem.Z), Spanned(B[::-1], problem.Z)
    np.testing.assert_allclose(attention.logits(start, problem), attention.logits(start.W, problem), rtol=1e-12)
    for one in (other, other.W):
        np.testing.assert_allclose(attention.inner(start, one), jnp.sum(start.W * other.W), rtol=1e-12)
        np.testing.assert_allclose(metrics.correlation(start, one), metrics.correlation(start.W, other.W), rtol=1e-12)
    for rule in (OPTIMIZERS["scale-free"], OPTIMIZERS["plain"]):
        spanned, full = (
            descent.train(one, problem, optimizer=rule, steps=300, snapshots=(100,)) for one in (start, start.W)
        )
        assert isinstance(spanned.snapshots, Spanned)
        assert spanned.snapshots.B.shape == (1, 3, 40)
        apart = metrics.norm(matrix(spanned.weights) - matrix(full.weights))
        assert apart < 1e-10 * metrics.norm(matrix(full.weights))


@pytest.mark.slow
def test_descent_in_the_span_reaches_the_solution_in_the_span():
    problem = data.sphere(jax.random.key(3), 3, 4, 300)
    rule = OPTIMIZERS["scale-free"]
    run = descent.train(Spanned(jnp.zeros((3, 300)), problem.Z), problem, optimizer=rule, steps=20_000)
    constraints = svm.token_constraints(problem, tokens.selected(run.weights, problem))
    solution = svm.solve(constraints)
    in_span = Spanned(jnp.einsum("nt,ntd->nd", solution.duals, constraints.differences), problem.Z)
    np.testing.assert_allclose(metrics.correlation(in_span, solution.W), 1, rtol=1e-12)
    assert isinstance(run.weights, Spanned)
    assert 1 - metrics.correlation(run.weights, in_span) < 1e-4


def test_spanned_weights_refuse_what_they_cannot_hold():
    problem = instances.problem()
    zero = jnp.zeros(problem.Z.shape)
    with pytest.raises(ValueError, match="Z: expected the problem's queries, found 15 other entries"):
        descent.train(Spanned(zero, problem.Z + 1), problem)
    with pytest.raises(ValueError, match=r"B: expected shape \(3, 5\) for tokens of d = 5, found \(2, 5\)"):
        descent.train(Spanned(zero[:2], problem.Z), problem)
    with pytest.raises(ValueError, match="optimizer: expected one that moves Spanned weights along their gradient"):
        descent.train(Spanned(zero, problem.Z), problem, optimizer=optax.adam(0.1))
