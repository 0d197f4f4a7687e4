"""Engines: one trajectory, whatever is kept between steps; and which is chosen, in which dimension and how compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, data, descent, heads, initial, metrics, svm, tokens
from jaxattn.attention import Factored, Spanned, matrix
from jaxattn.descent import engines, factored_engine, loops, padding
from jaxattn.descent.factored_engine import Keys
from jaxattn.descent.gram_engine import Gram, Queries
from jaxattn.parallel import effort
from jaxattn.svm.packing import picked
from tests import instances
from tests.descent.cases import ALONG, SCALE_FREE, quadratic
from tests.instances import assert_close, slow

pytestmark = pytest.mark.compiled

SNAPSHOTS = jnp.array([0, 1, 10, 100, 500])
OPTIMIZERS = ALONG | {
    "falling": descent.falling(descent.exact_normalized_gd(0.3, penalty=0.01)),
    "relative": descent.relative(descent.normalized_gd(0.3, floor=0.0, penalty=0.0)),
    "falling jointly": descent.falling(descent.jointly_normalized_gd(0.3, penalty=0.0)),
    "relative jointly": descent.relative(descent.jointly_normalized_gd(0.3, penalty=0.0)),
    "relative and penalized": descent.relative(descent.exact_normalized_gd(0.3, penalty=0.01)),
}


def run(engine, optimizer, W, problem, head=heads.linear, snapshots=SNAPSHOTS):
    train = loops.trainer(descent.Rule(optimizer, 500, head=head), engine(optimizer.update))
    return train(W, problem, optimizer.init(W), None, (), snapshots)


def apart(found, direct):
    """How far two pytrees of weights are from each other, relative to the second."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(direct), strict=True)
    return max(float(metrics.norm(a - b) / metrics.norm(b)) for a, b in pairs)


def assert_one_trajectory(found, direct, until, rtol):
    for k, step in enumerate(SNAPSHOTS):
        if step <= until:
            assert apart(instances.lane(found.snapshots, k), instances.lane(direct.snapshots, k)) < rtol, int(step)
    assert_close(found.probability[:until], direct.probability[:until], rtol=rtol)
    assert_close(found.loss[:until], direct.loss[:until], rtol=rtol)
    assert_close(found.gradient_norm[:until], direct.gradient_norm[:until], rtol=100 * rtol)


@pytest.mark.parametrize("engine", [Queries, Gram])
@pytest.mark.parametrize(
    ("head", "name"),
    # A head changes the gradient at the logits alone: here what is given is its direction, and itself.
    [
        (quadratic, "plain"),
        (heads.linear, "scale-free"),
        *(slow(heads.linear, name) for name in ("published", "exact", "jointly", "plain")),
        slow(quadratic, "scale-free"),
    ],
)
def test_the_trajectory_is_that_of_the_weights_themselves(engine, name, head):
    W, problem = instances.free(), instances.problem()
    direct, found = (run(one, OPTIMIZERS[name], W, problem, head) for one in (engines.Direct, engine))
    # The gradient as published has an absolute error of 1e-16, whose sum over an input's tokens differs from zero and
    # which is all that is left of it after some hundreds of steps: until then only are its runs one run.
    assert_one_trajectory(found, direct, 100 if name == "published" else 500, 1e-10)


FACTORED = {("exact", 20), *((name, 2) for name in ("penalized jointly", "falling", "relative jointly"))}


@pytest.mark.parametrize(
    ("name", "m"),
    # Of the 20 columns no more than n T are kept.
    [(name, m) if (name, m) in FACTORED else slow(name, m) for name in OPTIMIZERS for m in (2, 5, 20)],
)
def test_the_trajectory_is_that_of_the_factors_themselves(name, m):
    start, problem = instances.factored(m=m), instances.problem()
    direct, found = (run(one, OPTIMIZERS[name], start, problem) for one in (engines.Direct, Keys))
    # A last digit grows by some orders of magnitude in some hundred steps, faster if they are longer; the gradient as
    # published errs by 1e-16, which is much of it by then.
    assert_one_trajectory(found, direct, 100 if name in ALONG and name != "published" else 10, 1e-9)


@pytest.mark.parametrize("lanes", [(), (3,)])
def test_coordinates_of_rows_are_those_of_an_orthonormal_basis(lanes):
    rows = np.random.default_rng(0).normal(size=(6, 20, *lanes))
    rows[2] = 0
    rows[4] = rows[0] - 2 * rows[1]
    rows[5] = rows[3] + 1e-9 * rows[5]
    found, basis = (
        np.moveaxis(np.asarray(one).reshape(6, -1, 3 if lanes else 1), -1, 0)
        for one in factored_engine.coordinates(jnp.asarray(rows))
    )
    of_basis = basis @ basis.mT
    np.testing.assert_allclose(found @ basis, np.moveaxis(rows.reshape(6, 20, -1), -1, 0), atol=1e-14)
    # A row of zeros, or one of length 1.
    units = np.diagonal(of_basis, axis1=1, axis2=2).round()
    np.testing.assert_allclose(of_basis, units[:, :, None] * np.eye(6), atol=1e-14)
    assert (units[:, [0, 1, 3, 5]] == 1).all()
    assert (units[:, 2] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 40])
def test_the_trajectory_is_the_same_for_few_and_many_dimensions(d):
    problem = data.sphere(jax.random.key(1), 3, 4, d)
    W = initial.free(jax.random.key(2), d)
    chosen = engines.Direct, Queries, Gram
    direct, *others = (matrix(run(one, SCALE_FREE, W, problem).weights) for one in chosen)
    for other in others:
        assert metrics.norm(other - direct) < 1e-10 * metrics.norm(direct)


@pytest.mark.parametrize("engine", [engines.Direct, Queries, Gram])
def test_a_gradient_below_the_smallest_square_still_gives_a_full_step(engine):
    # The square of a coefficient of 1e-200 is zero in double precision.
    W, rule = 6.5e4 * instances.free(), descent.exact_normalized_gd(0.1, floor=1e-300)
    found = run(engine, rule, W, instances.problem())
    assert 1e-290 < found.gradient_norm[0] < 1e-165
    np.testing.assert_allclose(metrics.norm(found.snapshots[1] - W), 0.1, rtol=1e-9)


@pytest.mark.parametrize(("d", "expected"), [(2, Queries), (10, Queries), (40, Gram), (1000, Gram)])
def test_the_cheapest_engine_is_chosen(d, expected):
    problem = jax.eval_shape(lambda: data.sphere(jax.random.key(0), n=6, T=8, d=d))
    W: Any = jax.ShapeDtypeStruct((d, d), float)
    factors, update = Factored(W, W), descent.gd(0.1).update
    for weights, kind in ((W, expected), (factors, engines.Direct if d < 40 else Keys)):
        assert engines.chosen(update, weights, problem)[0] is kind
        assert engines.chosen(optax.adam(0.1).update, weights, problem)[0] is engines.Direct


@pytest.mark.slow
@pytest.mark.parametrize("rule", [SCALE_FREE, optax.adam(0.1)], ids=["along", "adam"])
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
    for rule in (SCALE_FREE, ALONG["plain"]):
        given = {"optimizer": rule, "steps": 300, "snapshots": (100,)}
        spanned, full = (descent.train(one, problem, **given) for one in (start, start.W))
        assert isinstance(spanned.snapshots, Spanned)
        assert spanned.snapshots.B.shape == (1, 3, 40)
        assert apart(matrix(spanned.weights), matrix(full.weights)) < 1e-10


@pytest.mark.slow
def test_descent_in_the_span_reaches_the_solution_in_the_span():
    problem = data.sphere(jax.random.key(3), 3, 4, 300)
    run = descent.train(Spanned(jnp.zeros((3, 300)), problem.Z), problem, optimizer=SCALE_FREE, steps=20_000)
    constraints = svm.token_constraints(problem, tokens.selected(run.weights, problem))
    solution = svm.solve(constraints)
    in_span = Spanned(jnp.einsum("nt,ntd->nd", solution.duals, constraints.differences), problem.Z)
    np.testing.assert_allclose(metrics.correlation(in_span, solution.W), 1, rtol=1e-12)
    assert isinstance(run.weights, Spanned)
    assert 1 - metrics.correlation(run.weights, in_span) < 1e-4


# How a batch is planned: the dimension of its program, and its compilation effort.
n, T, SEEDS = 3, 4, 4
KEYS = jax.random.split(jax.random.key(0), SEEDS)
HEADS = {"linear": heads.linear, "mlp": heads.mlp, "quadratic": heads.Quadratic(0.3)}


def batch_of(d, law=data.sphere, seeds=SEEDS):
    """Starts and problems of dimension d."""
    keys = jax.random.split(jax.random.key(d), seeds)
    problems = jax.vmap(lambda key: law(key, n=n, T=T, d=d))(keys)
    return jax.vmap(lambda key: initial.free(key, d))(keys), problems


def planned(d=5, steps=60, snapshots=2, optimizer=ALONG["published"], head=heads.linear, n=n, T=T, m=None, of=None):
    """The plan for a batch of these sizes."""
    start = np.zeros((SEEDS, d, d)) if m is None else Factored(*[jnp.zeros((SEEDS, d, m))] * 2)
    problems = jax.eval_shape(jax.vmap(lambda key: data.sphere(key, n=n, T=T, d=d)), KEYS)
    return padding.plan(descent.Rule(optimizer, steps, head=head), start, problems, snapshots, of)


@pytest.mark.parametrize(
    ("given", "d"),
    [
        ({}, 16),
        *(({"head": head}, 16) for head in HEADS.values()),
        *(({"d": d}, wide) for d, wide in ((1, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64), (65, 128))),
        # Where it is not exact or does not pay, a problem keeps its dimension.
        ({"optimizer": optax.adam(0.1)}, 5),
        ({"head": lambda x, v: x.mean() * v[0]}, 5),
        ({"snapshots": 10**6}, 5),
        ({"m": 5}, 5),
        # Where its own steps are cheaper, a long run does.
        ({"d": 4, "n": 6, "T": 8, "steps": 10**5}, 16),
        ({"d": 4, "n": 6, "T": 8, "steps": 10**7}, 4),
    ],
)
def test_the_dimension_of_a_program_follows_from_the_sizes(given, d):
    assert planned(**given).d == d


def test_the_more_there_is_to_compute_the_longer_a_program_may_compile():
    efforts = [planned(steps=steps).effort for steps in (10, 10**6, 10**8)]
    assert efforts == [effort.BRIEF, effort.SOLVING, effort.FULL]
    # It follows from the study, not from the batch.
    for of in (None, 4, 10**7):
        expected = padding.Plan(5, effort.FULL) if of == 10**7 else padding.Plan(16, effort.BRIEF)
        assert planned(steps=2000, of=of) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "head", "d"),
    [
        *((SCALE_FREE, "linear", d) for d in (1, 2, 7, 31)),
        *((ALONG[rule], "linear", 5) for rule in ("published", "plain", "exact")),
        *((SCALE_FREE, head, 5) for head in ("mlp", "quadratic")),
        (SCALE_FREE, "causal", 5),
    ],
)
def test_every_lane_is_the_lone_run_of_its_own_dimension(optimizer, head, d):
    start, problems = batch_of(d, {"mlp": data.mlp, "causal": data.causal}.get(head, data.sphere))
    given = {"optimizer": optimizer, "steps": 60, "snapshots": (1, 60), "head": HEADS.get(head, heads.linear)}
    together = descent.train_batch(start, problems, **given)
    assert np.shape(together.weights) == (SEEDS, d, d)
    for i in range(SEEDS):
        alone = descent.train(start[i], instances.lane(problems, i), **given)
        assert_close(instances.lane(together, i), alone, rtol=1e-9)


@pytest.fixture
def traced(monkeypatch):
    """The shapes of X, a lane's or a batch's, for which a run is traced from now on."""
    shapes = []
    train = loops._train

    def noted(*arguments, **given):
        shapes.append(arguments[1].seen.X.shape)
        return train(*arguments, **given)

    monkeypatch.setattr(loops, "_train", noted)
    loops.trainer.cache_clear()
    return shapes


@pytest.mark.slow
def test_a_sweep_over_d_compiles_one_program_of_descent(traced):
    for d in (2, 4, 8, 16):
        descent.train_batch(*batch_of(d), optimizer=descent.gd(0.123), steps=60)
    assert {shape[2] for shape in traced} == {16}
    # Traced for the shapes of what it returns, and to be compiled: once.
    assert len(traced) <= 2


@pytest.mark.slow
def test_a_study_in_uneven_batches_runs_one_program_and_differs_in_no_bit(traced):
    start, problems = batch_of(5, seeds=300)
    given = {"optimizer": descent.gd(0.456), "steps": 60, "of": 300}
    whole = descent.train_batch(start, problems, **given)
    lanes = np.split(np.arange(300), (170, 290))
    parts = [descent.train_batch(*picked((start, problems), part), **given) for part in lanes]
    for of_whole, *of_parts in zip(*map(jax.tree.leaves, (whole, *parts)), strict=True):
        np.testing.assert_array_equal(np.concatenate(of_parts), of_whole)
    # All of one width, of which the last batch alone would be less.
    assert len({shape for shape in traced if len(shape) == 4}) == 1
