"""What a fixed head reads: scores, optimal tokens, and which prefixes have a unique one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language
from tests.language.texts import V, d

KEY = jax.random.key(4)
WORDS = np.array([[0, 1, 2, 0, 1, 3], [2, 2, 3, 2, 3, 3], [1, 3, 1, 0, 3, 2]])
E = np.random.default_rng(1).normal(size=(V, d))


def test_a_dual_head_reads_one_in_its_own_direction_and_less_than_delta_in_any_other():
    np.testing.assert_allclose(E @ language.dual_head(KEY, jnp.asarray(E)), np.eye(V), atol=1e-12)
    others = (E @ language.dual_head(KEY, jnp.asarray(E), 0.25))[~np.eye(V, dtype=bool)]
    assert np.all((others >= -1e-12) & (others < 0.25))
    assert np.ptp(others) > 0.1


def test_a_head_that_cannot_be_is_named():
    with pytest.raises(ValueError, match=r"delta: expected a number within \[0, 1\), found 1"):
        language.dual_head(KEY, jnp.asarray(E), 1.0)
    with pytest.raises(ValueError, match="E: expected at most as many words as dimensions, found V = 4 and d = 3"):
        language.dual_head(KEY, jnp.asarray(E[:, :3]))
    with pytest.raises(ValueError, match=r"H: expected shape \(6, 4\), a direction for each word, found \(4, 6\)"):
        language.head_scores(language.of_text(E, WORDS), jnp.zeros((4, 6)))


def by_hand(words, read):
    """Whether one position alone, others beside it, has the largest score of every prefix, and is that of the next."""
    for sequence in words:
        for j in range(1, len(sequence)):
            scores = [read[word, sequence[j]] for word in sequence[:j]]
            unique = j > 1 and scores.count(max(scores)) == 1
            yield unique and sequence[int(np.argmax(scores))] == sequence[j]


@pytest.mark.parametrize("head", ["dual", "close", "drawn"])
def test_an_input_has_its_next_word_at_the_one_position_of_largest_score(head):
    H = {
        "dual": language.dual_head(KEY, jnp.asarray(E)),
        "close": language.dual_head(KEY, jnp.asarray(E), 0.1),
        "drawn": jax.random.normal(KEY, (d, V)),
    }[head]
    read = np.round(E @ np.asarray(H), 6)
    text = jax.jit(lambda E, H: language.head_scores(language.of_text(E, WORDS, language.prefix), H))(E, H)
    assert 0 < text.weight.sum() < len(text.weight)
    assert text.weight.tolist() == [float(one) for one in by_hand(WORDS, read)]
    np.testing.assert_array_equal(text.next, WORDS[:, 1:].ravel())
    np.testing.assert_allclose(text.scores, read.T[WORDS[:, 1:].ravel()], atol=1e-6)
    if head == "dual":
        # To the last bit, however ill-conditioned the embeddings are.
        assert set(np.unique(text.scores)) == {0.0, 1.0}


def test_a_read_language_has_the_words_of_the_language_and_only_prefixes_with_a_unique_optimal_token():
    sizes = {"m": 5, "n": 8, "d": d, "V": V, "entropy": 0.5}
    laws = partial(data.language, **sizes, candidates=language.prefix), partial(data.read_language, **sizes)
    plain, read = jax.jit(lambda key: [law(key) for law in laws])(KEY)
    for name in ("E", "last", "counts"):
        np.testing.assert_array_equal(getattr(read, name), getattr(plain, name))
    kept = np.asarray(read.weight) > 0
    assert 0 < kept.sum() < np.sum(np.asarray(plain.weight) > 0)
    np.testing.assert_array_equal(read.next[kept], plain.next[kept])
    times = np.take_along_axis(np.asarray(read.counts), np.asarray(plain.next)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(kept, (times == 1) & (np.asarray(read.counts).sum(axis=1) > 1))
