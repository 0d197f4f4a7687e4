"""How many pairs carry the gradient: masses, shares and limits against other formulas, and verdicts by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, language, losses, records, svm
from jaxattn.experiments.language.gradient_sparsity.masked import SupportTraining
from jaxattn.experiments.language.gradient_sparsity.measure import carrying, contested, limits, masses, measure
from jaxattn.parallel import batch
from jaxattn.study.settings import recording, schedule, texts
from tests.experiments.language.text_records import in_memory
from tests.experiments.synthetic import synthetic

KEY = jax.random.key(0)
carrying, masses = jax.jit(carrying), jax.jit(masses)
SEEDS, STEPS = 30, np.array(schedule.Logarithmically(4)(10_000))
VERDICTS = {"gradient-sparsity:few": "does not hold"}


def measured():
    """Few pairs carry the gradient at the end, except for feasible texts of one run; hardly any on other pairs."""
    level, falling = np.full(len(STEPS), 0.98), 0.98 - 0.15 * np.log10(STEPS)
    return {
        "vocabulary, d = 10": shares("vocabulary", 10, falling, limit=0.38),
        "prefix, d = 100": shares("prefix", 100, level, limit=0.98),
        "vocabulary, d = 10, support vectors alone": shares("vocabulary", 10, falling, limit=0.38, masked=1),
    }


def shares(candidates, d, share, limit, masked=0):
    """A run with this share for feasible texts, the first half; it falls for the others."""
    feasible = np.arange(SEEDS) < SEEDS // 2
    noise = np.random.default_rng(0).normal(0, 0.004, (SEEDS, 1))
    settings = {"candidates": candidates, "data.d": d, "masked": masked, "prefixes": 45, "steps": int(STEPS[-1])}
    return synthetic(
        SEEDS,
        settings,
        {"snapshot": STEPS},
        limit=limit,
        core=0.4,
        pairs=450.0,
        dropped=9.0,
        feasible=feasible,
        share=noise + np.where(feasible[:, None], share, 0.98 - 0.15 * np.log10(STEPS)),
        beside=(1 + noise) * 0.3 / STEPS,
        off=np.where(feasible, 1e-4 + 1e-3 * noise[:, 0] ** 2, 0.0),
        margin=np.where(feasible, 0.99 + noise[:, 0], 1.0),
    )


# Two sequences in which words come back.
WORDS = np.array([[0, 1, 2, 0, 1, 2], [3, 4, 3, 4, 3, 4]])


def text(candidates, d=9, words=WORDS):
    E = jax.random.normal(jax.random.key(5), (5, d)) / np.sqrt(d)
    return language.of_text(E, words, candidates)


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [language.vocabulary, language.prefix])
@pytest.mark.parametrize("size", [0.0, 1.0, 4.0])
def test_masses_are_those_of_the_gradient_by_the_logits_of_each_prefix(candidates, size):
    one = text(candidates)
    table = size * jax.random.normal(KEY, (5, 5))

    def risk(logits):
        counts = jnp.ones_like(logits) if one.counts is None else one.counts
        weighted = jnp.where(counts > 0, counts * jnp.exp(logits), 0.0)
        of_next = jnp.take_along_axis(weighted, one.next[:, None], axis=1)[:, 0]
        kept = one.weight > 0
        return -jnp.sum(jnp.where(kept, jnp.log(jnp.where(kept, of_next / weighted.sum(axis=1), 1.0)), 0.0))

    mass = np.abs(jax.grad(risk)(table[one.last]))
    found = np.asarray(masses(table, one))
    np.testing.assert_allclose(found / found.sum(), mass / mass.sum(), rtol=1e-9, atol=1e-12)


def test_masses_have_their_ratios_far_below_the_smallest_number():
    # Only word 0 asks and is answered; the others lag by 2000 and 2001.
    one = text(language.vocabulary, words=np.array([[0, 1]]))
    table = jnp.zeros((5, 5)).at[0].set(jnp.array([-2000.0, 0.0, -2000.0, -2001.0, -3000.0]))
    mass = np.asarray(masses(table, one))[0]
    np.testing.assert_allclose(mass / mass[0], [1, 2 + np.exp(-1), 1, np.exp(-1), 0], rtol=1e-9)


def test_the_share_is_the_least_part_of_the_pairs_that_carries_the_mass():
    one = text(language.vocabulary)
    everything = jnp.ones((10, 5), bool)
    rng = np.random.default_rng(0)
    for _ in range(5):
        mass = rng.exponential(size=(10, 5)) ** 3
        sums = np.cumsum(np.sort(mass.ravel())[::-1])
        expected = (np.argmax(sums >= 0.99 * sums[-1]) + 1) / 50
        assert float(carrying(jnp.asarray(mass), everything, one)) == pytest.approx(expected)
    # All alike: 99 % of fifty is 49.5.
    assert float(carrying(jnp.ones((10, 5)), everything, one)) == 1
    assert float(carrying(jnp.zeros((10, 5)), everything, one)) == 0


@pytest.mark.slow
def test_prefixes_that_are_put_together_count_as_often_as_they_stand_there():
    whole = text(language.vocabulary, words=np.array([[0, 1, 0, 1, 0, 1, 2]]))
    compact = language.compact(whole)
    assert compact.last.shape == (3,)
    assert whole.last.shape == (6,)
    for size in (2.0, 4.0):
        table = size * jax.random.normal(KEY, (5, 5))
        shares = [
            float(carrying(masses(table, one), jnp.ones((len(one.last), 5), bool), one))
            for one in (whole, jax.tree.map(jnp.asarray, compact))
        ]
        assert shares[0] == pytest.approx(shares[1])
        assert 0 < shares[0] < 1


def test_contested_words_follow_one_word_in_turn():
    # 1 goes on with 2 and with 3, everything else in one way.
    words = np.array([[0, 1, 2, 0, 1, 3]])
    found = np.asarray(contested(text(language.vocabulary, words=words)))
    expected = np.zeros((5, 5), bool)
    expected[[1, 1, 4, 4], [2, 3, 2, 3]] = True
    np.testing.assert_array_equal(found, expected)
    # As candidates of its own prefix 3 is never there, so that nothing is contested.
    assert not np.any(contested(text(language.prefix, words=words)))


@pytest.mark.parametrize("candidates", [language.vocabulary, language.prefix])
def test_far_along_the_solution_masses_are_the_multipliers(candidates):
    one = text(candidates)
    solution = svm.solve(language.constraints(one))
    assert svm.Status(int(solution.status)) is svm.Status.OPTIMAL
    run = language.train(one, optimizer=descent.normalized_gd(0.1, 0.0, 0.0), steps=20_000)
    mass = np.asarray(masses(one.E @ one.E.T @ run.pairs @ one.E @ one.E.T, one))
    limit = np.asarray(limits(solution.duals, one))
    np.testing.assert_allclose(mass / mass.sum(), limit / limit.sum(), atol=3e-3)
    assert limit.max() / limit.sum() > 0.02


@pytest.fixture(scope="module", params=[language.vocabulary, language.prefix])
def record(request, tmp_path_factory):
    law = partial(data.language, m=3, n=8, d=12, V=5, entropy=0.3, candidates=request.param)
    setting = texts.TextTraining(
        law, descent.normalized_gd(0.1, 0.0, 0.0), losses.cross_entropy, 6, 1, 100, schedule.Logarithmically(2), 100
    )
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting, path, {})
    return records.load(path)


@pytest.mark.slow
def test_pairs_of_a_record_are_counted_by_prefix(record):
    one = measure(record)
    assert one.attrs["attempted"] == one.attrs["kept"] == 6
    assert one.attrs["prefixes"] == 21
    whole = one.attrs["candidates"] == "vocabulary"
    law = partial(data.language, m=3, n=8, d=12, V=5, entropy=0.3)
    drawn = batch.over_seeds(recording.from_words(law), record["data_key"].values)
    for seed in range(6):
        sequences = np.concatenate(
            [np.asarray(drawn.last[seed]).reshape(3, 7), np.asarray(drawn.next[seed]).reshape(3, 7)[:, -1:]], axis=1
        )
        prefixes = [(row[:j], row[j]) for row in sequences.tolist() for j in range(1, 8)]
        counted = [len(set(seen)) for seen, following in prefixes if following in seen and len(set(seen)) > 1]
        expected = (105, 0) if whole else (sum(counted), 21 - len(counted))
        assert (float(one["pairs"][seed]), float(one["dropped"][seed])) == pytest.approx(expected)
    assert np.all((one["share"] > 0) & (one["share"] <= 1))
    assert np.all(one["beside"].values[:, -1] <= one["beside"].values[:, 0])
    assert np.any(one["beside"].values[:, -1] < one["beside"].values[:, 0])


@pytest.mark.slow
def test_runs_that_diverged_are_left_out(record):
    changed = record.copy(deep=True)
    changed["pairs"].values[1] = np.nan
    one = measure(changed)
    assert (one.attrs["kept"], one.attrs["diverged"], one.attrs["unsolved"]) == (5, 1, 0)
    changed["pairs"].values[:] = np.nan
    with pytest.raises(ValueError, match="gradient-sparsity: expected a kept seed, found counts"):
        measure(changed)


@pytest.mark.parametrize("candidates", [language.vocabulary, pytest.param(language.prefix, marks=pytest.mark.slow)])
def test_support_vectors_alone_are_trained_on_and_the_whole_text_is_judged(candidates):
    law = partial(data.language, m=3, n=6, d=12, V=5, entropy=0.1, candidates=candidates)
    rule = descent.normalized_gd(0.1, 0.0, 0.0)
    setting = SupportTraining(law, rule, losses.cross_entropy, 4, 1, 100, schedule.Logarithmically(2), 100)
    record = in_memory(setting)
    one = measure(record)
    assert one.attrs["masked"] == 1
    assert one.attrs["candidates"] == ("vocabulary" if candidates is language.vocabulary else "prefix")
    for lane in np.flatnonzero(one["feasible"]):
        seed = int(one["seed"][lane])
        whole = texts.choices_of({str(name): jnp.asarray(record[name].values[seed]) for name in record.data_vars})
        W_mm = svm.solve(language.constraints(whole)).W
        others = np.asarray(whole.others)
        slack = np.asarray(language.margins(W_mm, whole))[others] - 1
        np.testing.assert_array_equal(record["trained_on"].values[seed][others], slack < 1e-6)
        W = whole.E.T @ record["pairs"].values[seed].T @ whole.E
        cosine = np.sum(W * W_mm) / np.linalg.norm(W) / np.linalg.norm(W_mm)
        assert float(one["off"][lane]) == pytest.approx(1 - float(cosine), abs=1e-9)
    assert one["feasible"].any()
