"""Choices: the prefixes of a text, their candidates, and the same in fewer numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language, metrics
from tests.instances import lane
from tests.language import texts
from tests.language.texts import CANDIDATES, V, d

WORDS = np.array([[0, 1, 1, 0, 2], [3, 3, 3, 1, 3], [2, 0, 2, 2, 1]])
E = np.random.default_rng(1).normal(size=(V, d))
BROKEN = E.copy()
BROKEN[2, 3] = np.nan
RISKS = [jax.jit(jax.value_and_grad(risk)) for risk in (language.risk, language.squared_risk)]


def prefixes(words):
    """Last and next word, and how often each word stands in the prefix, prefix by prefix."""
    for sequence in words:
        for j in range(1, len(sequence)):
            before = [int(word) for word in sequence[:j]]
            yield before[-1], int(sequence[j]), [before.count(word) for word in range(V)]


@pytest.mark.parametrize("candidates", CANDIDATES)
def test_every_prefix_asks_with_its_last_word_for_the_next(candidates):
    choices = language.of_text(E, WORDS, CANDIDATES[candidates])
    expected = list(prefixes(WORDS))
    assert len(choices.last) == len(expected)
    for i, (last, following, counts) in enumerate(expected):
        assert (choices.last[i], choices.next[i]) == (last, following)
        # Nothing is chosen if the next word has not been seen, or no other one has.
        chooses = candidates == "vocabulary" or (counts[following] > 0 and np.count_nonzero(counts) > 1)
        if candidates == "vocabulary":
            assert choices.counts is None
            counts = [1] * V
        else:
            assert choices.counts is not None
            np.testing.assert_array_equal(choices.counts[i], counts)
        assert choices.weight[i] == float(chooses)
        others = [chooses and word != following and counts[word] > 0 for word in range(V)]
        np.testing.assert_array_equal(choices.others[i], others)
        np.testing.assert_array_equal(choices.worth[i], np.arange(V) == following)
    assert candidates == "vocabulary" or choices.weight.sum() == 5
    np.testing.assert_allclose(choices.share, choices.weight / choices.weight.sum())


def test_candidates_are_any_function_of_the_text():
    def all_but_word_0(words, V):
        return jnp.ones((*words[:, :-1].shape, V)).at[:, :, 0].set(0.0)

    choices = language.of_text(E, WORDS, all_but_word_0)
    np.testing.assert_array_equal(choices.weight, WORDS[:, 1:].ravel() != 0)
    assert not np.any(choices.others[:, 0])


@pytest.mark.parametrize(
    ("E", "words", "candidates", "message"),
    [
        (E, [[0, 4]], "vocabulary", r"^words: expected words within 0\.\.V-1 = 3, found 0..4"),
        (E, [[-1, 2]], "vocabulary", r"^words: expected words within 0\.\.V-1 = 3, found -1..2"),
        (E, [[0.0, 1.0]], "vocabulary", r"^words: expected integers .* found shape \(1, 2\) of float64"),
        (E, [0, 1], "vocabulary", r"^words: expected integers .* found shape \(2,\)"),
        (E, [[0], [1]], "vocabulary", r"^words: expected integers .* found shape \(2, 1\)"),
        (E, [[0, 1, 2, 3]], "prefix", r"^words: expected a prefix that its next word is a candidate of.* of 3"),
        (E[:1], [[0, 0]], "vocabulary", r"^E: expected embeddings \(V, d\) of at least 2 words, found shape \(1, 6\)"),
        (E[0], [[0, 1]], "vocabulary", r"^E: expected embeddings \(V, d\) of at least 2 words, found shape \(6,\)"),
        (BROKEN, [[0, 1]], "vocabulary", r"^E: expected finite numbers, found nan at index \(2, 3\)"),
    ],
)
def test_what_is_no_text_is_refused(E, words, candidates, message):
    with pytest.raises(ValueError, match=message):
        language.of_text(E, words, CANDIDATES[candidates])


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


# One text with more words than features, one with less, both with repetitions.
SHAPES = [("vocabulary", 3), ("prefix", 6)]
SHAPES += [pytest.param(*case, marks=pytest.mark.slow) for case in (("vocabulary", 6), ("prefix", 3))]


@pytest.mark.parametrize(("candidates", "width"), SHAPES)
def test_compact_choices_have_each_input_once_and_the_same_risk(candidates, width):
    text = texts.drawn(candidates, d=width)
    small = language.compact(text)
    assert small.E.shape == (V, V)
    np.testing.assert_allclose(small.E @ small.E.T, text.E @ text.E.T, atol=1e-14)

    def inputs(choices):
        kept = np.flatnonzero(np.asarray(choices.weight) > 0)
        return [(int(choices.last[i]), int(choices.next[i]), *texts.positions(choices, int(i))) for i in kept]

    merged = dict(zip(inputs(small), np.asarray(small.weight).tolist(), strict=True))
    assert merged == {one: float(inputs(text).count(one)) for one in inputs(text)}
    assert len(merged) == len(small.last) < len(text.last)
    pairs = texts.matrix(4, V)
    for risk in RISKS:
        (value, slope), (same, of_small) = (risk(language.weights(pairs, c).W, c) for c in (text, small))
        np.testing.assert_allclose(same, value, rtol=1e-12)
        np.testing.assert_allclose(metrics.norm(of_small), metrics.norm(slope), rtol=1e-11)
    twice = language.compact(small)
    np.testing.assert_array_equal(twice.weight, small.weight)
    np.testing.assert_allclose(twice.E @ twice.E.T, small.E @ small.E.T, atol=1e-14)


def test_lanes_of_a_batch_are_lone_texts_filled_up_with_inputs_that_count_for_nothing():
    batch = texts.batch_of("prefix")
    small = language.compact(batch)
    lengths = []
    for i in range(3):
        lone, padded = language.compact(texts.drawn("prefix", i)), lane(small, i)
        for name in ("others", "worth", "share"):
            np.testing.assert_array_equal(getattr(batch, name)[i], getattr(texts.drawn("prefix", i), name))
        lengths.append(len(lone.last))
        np.testing.assert_array_equal(padded.weight[: lengths[i]], lone.weight)
        np.testing.assert_array_equal(padded.weight[lengths[i] :], 0)
        assert not np.any(padded.others[lengths[i] :])
        W = language.weights(texts.matrix(1, V), lone).W
        for risk in RISKS:
            found, expected = risk(W, jax.tree.map(jnp.asarray, padded)), risk(W, lone)
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
            np.testing.assert_allclose(found[1], expected[1], atol=1e-14)
    assert len(small.last[0]) == max(lengths) > min(lengths)


def test_choices_with_scores_are_not_made_compact():
    choices = texts.drawn()
    with pytest.raises(ValueError, match=r"^compact: expected choices without scores of their own, found some"):
        language.compact(choices._replace(scores=choices.worth))
