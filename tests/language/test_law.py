"""The Markov law: its entropy, its table and what is drawn from it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language

KEY = jax.random.key(3)
V = 5


def entropies(table) -> np.ndarray:
    """Of every context, in double precision."""
    log_p = np.asarray(table, float)
    p = np.exp(log_p)
    return -np.sum(np.where(p > 0, p * log_p, 0.0), axis=1)


def frequencies(words, V, order) -> np.ndarray:
    """How often each word follows each context, (V^order, V), counted by a slow loop."""
    counts = np.zeros((V**order, V))
    for sequence in np.asarray(words):
        for j in range(order, len(sequence)):
            context = 0
            for word in sequence[j - order : j]:
                context = context * V + int(word)
            counts[context, sequence[j]] += 1
    return counts


@pytest.mark.parametrize(
    ("entropy", "order"), [(0.0, 2), (1e-3, 1), (0.8, 1), (0.8, 2), (1.6, 1), (math.log(V), 1), (math.log(V), 2)]
)
def test_every_context_has_the_given_entropy(entropy, order):
    table = language.Markov(V, entropy, order).table(KEY)
    assert table.shape == (V**order, V)
    np.testing.assert_allclose(entropies(table), entropy, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.sum(np.exp(table), axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("entropy", [0.0, 0.5, math.log(2)])
def test_two_words_have_it_too(entropy):
    np.testing.assert_allclose(entropies(language.Markov(2, entropy).table(KEY)), entropy, rtol=0, atol=1e-9)


@pytest.mark.parametrize("entropy", [0.0, 0.1, 0.8, math.log(V)])
def test_single_precision_has_it_to_its_own_rounding(entropy):
    with jax.enable_x64(False):
        law = language.Markov(V, entropy)
        table = law.table(KEY)
        words = law.sample(KEY, table, m=3, n=7)
    assert (table.dtype, words.dtype) == (np.float32, np.int32)
    np.testing.assert_allclose(entropies(table), entropy, rtol=0, atol=2e-6)


def test_contexts_differ_and_so_do_keys():
    law = language.Markov(V, 0.8)
    table = np.exp(law.table(KEY))
    assert len(np.unique(np.argmax(table, axis=1))) > 1
    assert len(np.unique(np.round(table, 12), axis=0)) == V
    assert not np.array_equal(table, np.exp(law.table(jax.random.key(4))))
    np.testing.assert_array_equal(table, np.exp(law.table(KEY)))


@pytest.mark.parametrize("order", [1, 2])
def test_words_follow_as_often_as_the_table_says(order):
    law = language.Markov(3, 0.9, order)
    table = law.table(KEY)
    words = law.sample(jax.random.key(8), table, m=200, n=100)
    counts = frequencies(words, 3, order)
    assert counts.sum() == 200 * (100 - order)
    expected = counts.sum(axis=1, keepdims=True) * np.exp(table)
    # Of 2 degrees of freedom a context; 6 standard deviations above the mean.
    freedom = 2 * 3**order
    assert counts.min() > 5
    assert np.sum((counts - expected) ** 2 / expected) < freedom + 6 * np.sqrt(2 * freedom)


def test_the_first_words_are_uniform_and_independent():
    law = language.Markov(3, 0.0, order=2)
    words = np.asarray(law.sample(KEY, law.table(KEY), m=9000, n=3))
    counts = np.bincount(words[:, 0] * 3 + words[:, 1], minlength=9)
    assert np.sum((counts - 1000) ** 2 / 1000) < 8 + 6 * 4


@pytest.mark.parametrize("order", [1, 3])
def test_without_entropy_a_sequence_is_the_likeliest_word_of_every_context(order):
    law = language.Markov(4, 0.0, order)
    drawn = law.table(KEY)
    table, words = np.asarray(drawn), np.asarray(law.sample(jax.random.key(1), drawn, m=20, n=12))
    for sequence in words:
        for j in range(order, 12):
            # The digits of a number, the last word the lowest.
            context = sum(int(word) * 4**place for place, word in enumerate(sequence[j - order : j][::-1]))
            assert sequence[j] == np.argmax(table[context])
    assert set(words.ravel()) <= set(range(4))


def test_of_order_two_the_next_word_depends_on_both():
    table = np.argmax(language.Markov(4, 0.0, 2).table(KEY), axis=1).reshape(4, 4)
    assert np.any(table != table[:1])
    assert np.any(table != table[:, :1])


def test_it_works_under_jit_and_vmap():
    law = language.Markov(V, 0.8, 2)

    def drawn(key):
        table = law.table(key)
        return table, law.sample(key, table, m=3, n=6)

    keys = jax.random.split(KEY, 3)
    tables, words = jax.jit(jax.vmap(drawn))(keys)
    for i in range(3):
        table, sequences = drawn(keys[i])
        np.testing.assert_allclose(tables[i], table, rtol=1e-12)
        np.testing.assert_array_equal(words[i], sequences)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0.0), r"^V: expected at least 2, found 1"),
        ((5, 0.5, 0), r"^order: expected at least 1, found 0"),
        ((5, -0.1), r"^entropy: expected 0\.\.log V = 1\.609 nats, found -0\.1"),
        ((5, 1.7), r"^entropy: expected 0\.\.log V = 1\.609 nats, found 1\.7"),
        ((5, math.nan), r"^entropy: expected 0\.\.log V = 1\.609 nats, found nan"),
        ((257, 0.5, 2), r"^order: expected at most 65536 contexts V\^order, found 257\^2"),
    ],
)
def test_a_law_out_of_range_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        language.Markov(*arguments)


@pytest.mark.parametrize(("m", "n"), [(0, 4), (3, 2), (3, 1)])
def test_sizes_without_a_word_drawn_by_the_law_are_refused(m, n):
    law = language.Markov(3, 0.5, 2)
    with pytest.raises(ValueError, match=rf"^m, n: expected m >= 1 and n > order = 2, found {m} and {n}"):
        law.sample(KEY, jnp.zeros((9, 3)), m, n)
