"""Choices: the prefixes of a text, their candidates, and the same in fewer numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language, metrics
from jaxattn.svm import Status
from tests import instances
from tests.language import texts
from tests.language.texts import CANDIDATES, V, d

WORDS = np.array([[0, 1, 1, 0, 2], [3, 3, 3, 1, 3], [2, 0, 2, 2, 1]])
E = np.random.default_rng(1).normal(size=(V, d))
BROKEN = E.copy()
BROKEN[2, 3] = np.nan


def slowly(words):
    """Last and next word, and how often each word stands in the prefix, prefix by prefix."""
    for sequence in words:
        for j in range(1, len(sequence)):
            before = [int(word) for word in sequence[:j]]
            yield before[-1], int(sequence[j]), [before.count(word) for word in range(V)]


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_every_prefix_asks_with_its_last_word_for_the_next(candidates):
    choices = language.of_text(E, WORDS, CANDIDATES[candidates])
    np.testing.assert_array_equal(choices.E, E)
    expected = list(slowly(WORDS))
    assert len(choices.last) == len(expected)
    for i, (last, following, counts) in enumerate(expected):
        assert (choices.last[i], choices.next[i]) == (last, following)
        if candidates == "vocabulary":
            assert choices.counts is None
            assert choices.weight[i] == 1
            others = [word != following for word in range(V)]
        else:
            np.testing.assert_array_equal(np.asarray(choices.counts)[i], counts)
            chooses = counts[following] > 0 and np.count_nonzero(counts) > 1
            assert choices.weight[i] == float(chooses)
            others = [chooses and word != following and counts[word] > 0 for word in range(V)]
        np.testing.assert_array_equal(choices.others[i], others)
        np.testing.assert_array_equal(choices.worth[i], np.arange(V) == following)


def test_prefixes_that_choose_nothing_are_left_out_for_both_reasons():
    # Next word not seen, or no other one.
    choices = language.of_text(E, WORDS, language.prefix)
    np.testing.assert_array_equal(choices.weight, [0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0])
    np.testing.assert_allclose(choices.share, choices.weight / 5)


def test_others_and_worth_of_a_batch_are_those_of_its_lanes():
    batch = texts.batch_of("prefix")
    for i in range(3):
        lone = texts.drawn("prefix", i)
        np.testing.assert_array_equal(batch.others[i], lone.others)
        np.testing.assert_array_equal(batch.worth[i], lone.worth)
        np.testing.assert_array_equal(batch.share[i], lone.share)


def test_candidates_are_any_function_of_the_text():
    def all_but_word_0(words, V):
        return jnp.ones((*words[:, :-1].shape, V)).at[:, :, 0].set(0.0)

    choices = language.of_text(E, WORDS, all_but_word_0)
    np.testing.assert_array_equal(choices.weight, WORDS[:, 1:].ravel() != 0)
    assert not np.any(choices.others[:, 0])


@pytest.mark.parametrize(
    ("E", "words", "message"),
    [
        (E, [[0, 4]], r"^words: expected numbers within 0\.\.V-1 = 3, found 0\.\.4"),
        (E, [[-1, 2]], r"^words: expected numbers within 0\.\.V-1 = 3, found -1\.\.2"),
        (E, [[0.0, 1.0]], r"^words: expected integers .* found shape \(1, 2\) of float64"),
        (E, [0, 1], r"^words: expected integers .* found shape \(2,\)"),
        (E, [[0], [1]], r"^words: expected integers .* found shape \(2, 1\)"),
        (E[:1], [[0, 0]], r"^E: expected embeddings \(V, d\) of at least 2 words, found shape \(1, 6\)"),
        (E[0], [[0, 1]], r"^E: expected embeddings \(V, d\) of at least 2 words, found shape \(6,\)"),
        (BROKEN, [[0, 1]], r"^E: expected finite numbers, found nan at index \(2, 3\)"),
    ],
)
def test_what_is_no_text_is_refused(E, words, message):
    with pytest.raises(ValueError, match=message):
        language.of_text(E, words)


def test_a_text_in_which_no_prefix_chooses_is_refused():
    with pytest.raises(ValueError, match=r"^words: expected a prefix that its next word is a candidate of.* of 3"):
        language.of_text(E, [[0, 1, 2, 3]], language.prefix)


@pytest.mark.slow
def test_a_lane_in_which_no_prefix_chooses_has_no_risk_and_does_not_move():
    # Under vmap it cannot be refused.
    words = jnp.asarray([[[0, 0, 0, 0, 1]], [[0, 1, 0, 1, 0]]])
    batch = jax.vmap(lambda words: language.of_text(jnp.asarray(E), words, language.prefix))(words)
    risks = jax.vmap(language.risk, in_axes=(None, 0))(texts.matrix(), batch)
    assert risks[0] == 0 < risks[1]
    run = language.train_batch(batch, steps=3)
    np.testing.assert_array_equal(run.pairs[0], 0)
    assert np.any(run.pairs[1] != 0)
    assert np.isfinite(run.loss).all()


# Compact choices: one text with more words than features, one with less, both with repetitions.
TEXTS = [(name, width) for name in CANDIDATES for width in (3, 6)]


@pytest.fixture(scope="module", params=TEXTS, ids=str)
def text(request):
    """Drawn choices, and embeddings of fewer or more dimensions than words."""
    name, width = request.param
    return texts.drawn(name, d=width)


def test_compact_choices_have_each_input_once(text):
    small = language.compact(text)
    assert small.E.shape == (V, V)
    np.testing.assert_allclose(small.E @ small.E.T, text.E @ text.E.T, atol=1e-14)
    inputs = [
        (int(text.last[i]), int(text.next[i]), *texts.positions(text, i).tolist())
        for i in range(len(text.last))
        if text.weight[i] > 0
    ]
    found = {
        (int(small.last[i]), int(small.next[i]), *texts.positions(small, i).tolist()): float(small.weight[i])
        for i in range(len(small.last))
    }
    assert found == {one: float(inputs.count(one)) for one in inputs}
    assert len(found) == len(small.last) < len(text.last)


def test_compact_choices_have_the_risk_and_the_length_of_its_gradient(text):
    small = language.compact(text)
    pairs = jnp.asarray(np.random.default_rng(4).normal(size=(V, V)))
    W, of_small = (language.weights(pairs, one).W for one in (text, small))
    for risk in (language.risk, language.squared_risk):
        both = jax.jit(jax.value_and_grad(risk))
        (value, slope), (same, of_same) = both(W, text), both(of_small, small)
        np.testing.assert_allclose(same, value, rtol=1e-12)
        np.testing.assert_allclose(metrics.norm(of_same), metrics.norm(slope), rtol=1e-11)


@pytest.mark.slow
def test_compact_choices_pose_the_same_max_margin_problem():
    raw = [texts.drawn(name, d=width) for name, width in TEXTS] + [texts.separable()]
    small = [language.compact(choices) for choices in raw]
    posed = [of(one) for of in (language.constraints, language.soft) for both in (raw, small) for one in both]
    found = texts.solved(*posed)
    status, primal = (leaf[: len(posed)].reshape(2, 2, -1) for leaf in (found.status, found.primal))
    np.testing.assert_array_equal(status[:, 0], status[:, 1])
    assert set(status[0].ravel()) == {Status.OPTIMAL, Status.INFEASIBLE}
    np.testing.assert_array_equal(status[1], Status.OPTIMAL)
    np.testing.assert_allclose(primal[:, 1], primal[:, 0], rtol=1e-7)


def test_compact_lanes_are_filled_up_with_inputs_that_count_for_nothing():
    batch = texts.batch_of("prefix")
    small = language.compact(batch)
    lengths = []
    for i in range(3):
        lone, lane = language.compact(texts.drawn("prefix", i)), instances.lane(small, i)
        lengths.append(len(lone.last))
        np.testing.assert_array_equal(lane.weight[: lengths[i]], lone.weight)
        np.testing.assert_array_equal(lane.weight[lengths[i] :], 0)
        assert not np.any(lane.others[lengths[i] :])
        pairs = texts.matrix(1, V)
        for risk in (language.risk, language.squared_risk):
            both = jax.jit(jax.value_and_grad(lambda pairs, one, risk=risk: risk(language.weights(pairs, one).W, one)))
            ours, theirs = both(pairs, jax.tree.map(jnp.asarray, lane)), both(pairs, lone)
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-13)
            np.testing.assert_allclose(ours[1], theirs[1], atol=1e-14)
    assert len(small.last[0]) == max(lengths) > min(lengths)


def test_compact_twice_is_compact():
    once = language.compact(texts.drawn())
    twice = language.compact(once)
    np.testing.assert_array_equal(twice.weight, once.weight)
    np.testing.assert_allclose(twice.E @ twice.E.T, once.E @ once.E.T, atol=1e-14)


def test_choices_with_scores_are_not_made_compact():
    choices = texts.drawn()
    with pytest.raises(ValueError, match=r"^compact: expected choices without scores of their own, found some"):
        language.compact(choices._replace(scores=choices.worth))


def test_single_precision_stays_single():
    with jax.enable_x64(False):
        choices = language.of_text(E.astype(np.float32), WORDS, language.prefix)
        small = language.compact(choices)
    for one in (choices, small):
        assert {np.asarray(leaf).dtype.name for leaf in (one.E, one.weight, one.counts)} == {"float32"}
