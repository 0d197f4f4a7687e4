"""The max-margin problem of a text: its rows, and certified solutions, hard and soft."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, descent, language, metrics, svm
from jaxattn.svm import Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.language import texts
from tests.language.texts import CANDIDATES, N, V, d


def test_there_is_a_row_for_every_prefix_and_other_candidate(choices):
    rows = language.constraints(choices)
    E, present = np.asarray(choices.E), np.asarray(rows.present)
    assert rows.differences.shape == (N, V, d)
    assert rows.targets is rows.equal is rows.penalty is None
    np.testing.assert_array_equal(rows.queries, E[choices.last])
    for i in range(N):
        assert np.flatnonzero(present[i]).tolist() == texts.others(choices, i)
    expected = np.where(present[:, :, None], E[choices.next][:, None] - E, 0.0)
    np.testing.assert_array_equal(rows.differences, expected)
    assert present.any()


def test_a_text_without_a_conflict_has_a_certified_solution():
    choices = texts.separable()
    solution = svm.solve(language.constraints(choices))
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert solution.primal > 0
    margins = np.asarray(language.margins(solution.W, choices))
    assert margins.min() == pytest.approx(1, abs=1e-9)
    assert np.isfinite(margins).sum() == N * (V - 1)


def test_a_text_with_a_conflict_is_certified_infeasible():
    solution = svm.solve(language.constraints(texts.conflicting()))
    assert Status(int(solution.status)) is Status.INFEASIBLE


@pytest.mark.slow
def test_at_a_price_above_its_duals_the_soft_solution_is_the_hard_one():
    choices = texts.separable()
    hard = instances.lane(texts.solved(language.constraints(choices)), 0)
    assert Status(int(hard.status)) is Status.OPTIMAL
    # Others may have smaller duals; these suffice.
    C = 1.01 * float(np.max(hard.duals))
    found = texts.solved(language.soft(choices, C), language.soft(choices, 0.01 * C))
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal[0], hard.primal, rtol=1e-7)
    np.testing.assert_allclose(found.W[0], hard.W, atol=1e-3 * float(hard.primal))
    assert found.primal[1] < 0.9 * hard.primal


@pytest.mark.slow
@pytest.mark.parametrize("candidates", CANDIDATES)
def test_compact_rows_have_the_price_of_all_that_were_put_together(candidates):
    choices = texts.of_words([[0, 1, 0, 1, 1]] * 3, candidates=candidates)
    small = language.compact(choices)
    assert np.min(small.weight) >= 3
    posed = language.soft(choices, 0.02), language.soft(small, 0.02)
    np.testing.assert_allclose(np.asarray(posed[1].penalty), 0.02 * np.repeat(small.weight[:, None], V, axis=1))
    found = texts.solved(*posed)
    np.testing.assert_array_equal(found.status, Status.OPTIMAL)
    np.testing.assert_allclose(found.primal[1], found.primal[0], rtol=1e-7)
    # What the text pays for a W is what it is said to.
    short = np.maximum(1 - np.asarray(language.margins(jnp.asarray(found.W[0]), choices)), 0)
    assert np.sum(short) > 0.1
    np.testing.assert_allclose(np.linalg.norm(found.W[0]) + 0.02 * short.sum(), found.primal[0], rtol=1e-9)


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan])
def test_a_price_that_is_not_positive_is_refused(C):
    with pytest.raises(ValueError, match=rf"^C: expected a positive price, found {C}"):
        language.soft(texts.drawn(), float(C))


@pytest.mark.parametrize("posed", [language.constraints, language.soft])
def test_rows_of_a_batch_are_those_of_its_texts(posed):
    small = language.compact(texts.batch_of("prefix"))
    rows = jax.jit(jax.vmap(posed))(small)
    alone_of = jax.jit(posed)
    for i in range(3):
        alone = alone_of(instances.lane(small, i))
        for name in ("differences", "queries", "present", "penalty"):
            found, expected = getattr(rows, name), getattr(alone, name)
            assert (found is None) is (expected is None)
            if expected is not None:
                np.testing.assert_array_equal(found[i], expected)


def test_inputs_that_fill_a_batch_up_have_no_rows():
    small = language.compact(texts.batch_of("prefix"))
    for i in range(3):
        rows = cons.rows(language.soft(instances.lane(small, i)))
        assert not np.any(np.asarray(rows.present)[np.asarray(small.weight[i]) == 0])
        np.testing.assert_array_equal(jnp.where(rows.present, rows.upper, 10.0) >= 10.0, True)


def counted(choices) -> dict[tuple[int, int], float]:
    """How often each word follows each other one."""
    times: dict[tuple[int, int], float] = {}
    for last, following, weight in zip(*(np.asarray(leaf) for leaf in choices[1:4]), strict=True):
        times[int(last), int(following)] = times.get((int(last), int(following)), 0.0) + float(weight)
    return {pair: weight for pair, weight in times.items() if weight > 0}


def of_sets(choices):
    """The rows that keep level all words that follow one word."""
    return language.set_constraints(choices, language.followers(choices) > 0)


def test_followers_are_counted(choices):
    times = np.zeros((V, V))
    for (last, following), weight in counted(choices).items():
        times[last, following] = weight
    np.testing.assert_array_equal(language.followers(choices), times)


def test_words_that_follow_one_word_are_kept_level():
    choices = texts.conflicting()
    rows, times = of_sets(choices), counted(choices)
    E = np.asarray(choices.E)
    assert rows.equal is not None
    assert rows.present is not None
    assert rows.targets is not None
    for a in range(V):
        after = [t for t in range(V) if (a, t) in times]
        for t in range(V):
            asked = bool(after) and t != after[0]
            assert bool(rows.present[a, t]) is asked
            assert bool(rows.equal[a, t]) is (asked and t in after)
            if asked:
                assert rows.targets[a, t] == (0.0 if t in after else 1.0)
                np.testing.assert_array_equal(rows.differences[a, t], E[after[0]] - E[t])
    solution = svm.solve(rows)
    assert Status(int(solution.status)) is Status.OPTIMAL
    S = np.asarray(language.table(solution.W, choices))
    assert S[1, 2] == pytest.approx(S[1, 3], abs=1e-9)
    assert min(S[1, 2] - S[1, t] for t in (0, 1)) >= 1 - 1e-9


@pytest.mark.slow
def test_the_finite_part_has_the_log_ratios_of_counts():
    choices = texts.of_words([[0, 1, 2, 3, 0], [0, 1, 3, 0, 1], [1, 2, 3, 0, 1], [3, 1, 2, 1, 2]])
    times = counted(choices)
    assert times[1, 2] == 4
    assert times[1, 3] == 1
    for one in (choices, jax.tree.map(jnp.asarray, language.compact(choices))):
        solution = svm.solve(language.finite_constraints(one))
        assert Status(int(solution.status)) is Status.OPTIMAL
        S = np.asarray(language.table(solution.W, one))
        assert S[1, 2] - S[1, 3] == pytest.approx(np.log(4), abs=1e-9)
        assert S[2, 3] - S[2, 1] == pytest.approx(np.log(2), abs=1e-9)


def test_without_a_conflict_sets_are_single_words_and_the_finite_part_is_zero():
    choices = texts.separable()
    hard, sets = svm.solve(language.constraints(choices)), svm.solve(of_sets(choices))
    np.testing.assert_allclose(sets.W, hard.W, atol=1e-9)
    finite = svm.solve(language.finite_constraints(choices))
    assert Status(int(finite.status)) is Status.OPTIMAL
    np.testing.assert_array_equal(finite.W, np.zeros((d, d)))


def test_descent_turns_to_finite_part_and_sets():
    choices = jax.tree.map(jnp.asarray, language.compact(texts.conflicting()))
    run = language.train(
        choices, optimizer=descent.Exact(*descent.gd(0.05)), steps=20_000, snapshots=(200, 2000), record_every=1000
    )
    finite, sets = (svm.solve(posed(choices)).W for posed in (language.finite_constraints, of_sets))
    kept = [attention.matrix(language.weights(pairs, choices)) for pairs in (*run.snapshots, run.pairs)]
    off = [1 - float(metrics.correlation(W, svm.with_finite_part(W, finite, sets))) for W in kept]
    assert off[0] > off[1] > off[2]
    times, S = counted(choices), np.asarray(language.table(kept[-1], choices))
    assert S[1, 2] - S[1, 3] == pytest.approx(np.log(times[1, 2] / times[1, 3]), abs=1e-3)


def test_sets_of_prefixes_are_refused():
    for posed in (of_sets, language.finite_constraints):
        with pytest.raises(ValueError, match="set_constraints: expected the vocabulary as candidates, found counts"):
            posed(texts.drawn("prefix"))
