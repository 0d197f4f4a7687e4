"""One program for problems of many dimensions: the same runs, one compilation, and only where it pays and is exact."""

import jax
import numpy as np
import optax
import pytest

from jaxattn import data, descent, heads, initial
from jaxattn.attention import Factored
from jaxattn.descent import loops, sharing
from jaxattn.parallel import effort
from jaxattn.svm.packing import picked
from tests import instances
from tests.instances import assert_close

n, T, STEPS = 3, 4, 60
SEEDS = 4
RULES = {
    "published": descent.normalized_gd(0.1),
    "scale-free": descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
    "plain": descent.gd(0.3),
    "exact": descent.exact_normalized_gd(0.1, floor=1e-16),
}
HEADS = {"linear": heads.linear, "mlp": heads.mlp, "quadratic": heads.Quadratic(0.3)}


def batch_of(d, law=data.sphere, seeds=SEEDS):
    """Return starts and problems of dimension d."""
    keys = jax.random.split(jax.random.key(d), seeds)
    problems = jax.vmap(lambda key: law(key, n=n, T=T, d=d))(keys)
    return jax.vmap(lambda key: initial.free(key, d))(keys), problems


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


def planned(start, problems, optimizer=RULES["published"], steps=STEPS, snapshots=2, head=heads.linear):
    return sharing.plan(optimizer.update, start, problems, steps, snapshots, head)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "head", "d"),
    [
        *(("scale-free", "linear", d) for d in (1, 2, 7, 31)),
        *((rule, "linear", 5) for rule in RULES if rule != "scale-free"),
        *(("scale-free", head, 5) for head in HEADS if head != "linear"),
    ],
)
def test_every_lane_is_the_lone_run_of_its_own_dimension(rule, head, d):
    start, problems = batch_of(d, data.mlp if head == "mlp" else data.sphere)
    assert planned(start, problems, head=HEADS[head]).d == 32
    given = {"optimizer": RULES[rule], "steps": STEPS, "snapshots": (1, STEPS), "head": HEADS[head]}
    together = descent.train_batch(start, problems, **given)
    assert np.shape(together.weights) == (SEEDS, d, d)
    for i in range(SEEDS):
        alone = descent.train(start[i], instances.lane(problems, i), **given)
        assert_close(instances.lane(together, i), alone, rtol=1e-9)


@pytest.mark.slow
def test_masked_tokens_stay_unseen():
    start, problems = jax.vmap(lambda key: (initial.free(key, 5), data.causal(key, n=2, T=3, d=5)))(
        jax.random.split(jax.random.key(0), SEEDS)
    )
    assert planned(start, problems).d == 32
    together = descent.train_batch(start, problems, optimizer=RULES["scale-free"], steps=STEPS)
    alone = descent.train(start[1], instances.lane(problems, 1), optimizer=RULES["scale-free"], steps=STEPS)
    assert_close(together.weights[1], alone.weights, rtol=1e-9)


@pytest.mark.slow
def test_a_sweep_over_d_compiles_one_program_of_descent(traced):
    rule = descent.gd(0.123)
    for d in (4, 8, 16, 32):
        descent.train_batch(*batch_of(d, seeds=SEEDS), optimizer=rule, steps=STEPS)
    assert {shape[2] for shape in traced} == {32}
    # Traced for the shapes of what it returns, and to be compiled: once.
    assert len(traced) <= 2


@pytest.mark.slow
def test_a_study_in_uneven_batches_runs_one_program_and_differs_in_no_bit(traced):
    start, problems = batch_of(5, seeds=300)
    given = {"optimizer": descent.gd(0.456), "steps": STEPS, "of": 300}
    whole = descent.train_batch(start, problems, **given)
    lanes = np.split(np.arange(300), (170, 290))
    parts = [descent.train_batch(*picked((start, problems), part), **given) for part in lanes]
    for of_whole, *of_parts in zip(*map(jax.tree.leaves, (whole, *parts)), strict=True):
        np.testing.assert_array_equal(np.concatenate(of_parts), of_whole)
    # All of one width, of which the last batch alone would be less.
    assert len({shape for shape in traced if len(shape) == 4}) == 1


@pytest.mark.parametrize("of", [None, 4, 10**7])
def test_how_a_batch_is_trained_follows_from_the_study(of):
    start, problems = batch_of(5)
    found = sharing.plan(RULES["published"].update, start, problems, 2000, 2, heads.linear, of)
    assert found == (sharing.Plan(5, effort.FULL) if of == 10**7 else sharing.Plan(32, effort.BRIEF))


@pytest.mark.parametrize(
    "given",
    [
        {"optimizer": optax.adam(0.1)},
        {"head": lambda x, v: x.mean() * v[0]},
        {"snapshots": 10**6},
    ],
    ids=["another optimizer", "a head of one's own", "many snapshots"],
)
def test_where_it_is_not_exact_or_does_not_pay_a_problem_keeps_its_dimension(given):
    assert planned(*batch_of(5), **given).d == 5


def test_where_its_own_steps_are_cheaper_a_long_run_keeps_its_dimension():
    given = jax.vmap(lambda key: (initial.free(key, 4), data.sphere(key, n=6, T=8, d=4)))
    start, problems = given(jax.random.split(jax.random.key(0), SEEDS))
    assert [planned(start, problems, steps=steps).d for steps in (10**5, 10**7)] == [32, 4]


def test_factors_keep_their_dimension():
    start, problems = batch_of(5)
    assert planned(Factored(start, start), problems).d == 5


@pytest.mark.slow
def test_the_standard_dimension_follows_from_the_problem_alone():
    found = {d: planned(*batch_of(d)).d for d in (1, 31, 32, 33, 64, 65)}
    assert found == {1: 32, 31: 32, 32: 32, 33: 64, 64: 64, 65: 128}


def test_the_more_there_is_to_compute_the_longer_a_program_may_compile():
    efforts = [planned(*batch_of(5), steps=steps).effort for steps in (10, 10**6, 10**8)]
    assert efforts == [effort.BRIEF, effort.SOLVING, effort.FULL]


def test_padding_adds_zeros_and_keeps_the_rest():
    padded = sharing.padded_to(np.ones((2, 3)), {1: 5})
    assert padded.shape == (2, 5)
    assert padded.sum() == 6
    assert padded[:, 3:].sum() == 0
