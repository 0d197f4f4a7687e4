"""The Markov law: its entropy, its table and what is drawn from it."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import language

KEY = jax.random.key(3)
V = 5


def table_of(law, key=KEY):
    return jax.jit(law.table)(key)


def sampled(law, key, table, **sizes):
    return jax.jit(partial(law.sample, **sizes))(key, table)


@pytest.mark.parametrize(
    ("V", "entropy", "order"),
    [
        *((5, entropy, 1) for entropy in (1e-3, 0.8, 1.6, math.log(5))),
        *((5, entropy, 2) for entropy in (0.0, math.log(5))),
        *((2, entropy, 1) for entropy in (0.0, 0.5, math.log(2))),
    ],
)
def test_every_context_has_the_given_entropy_in_either_precision(V, entropy, order):
    law = language.Markov(V, entropy, order)
    double = table_of(law)
    with jax.enable_x64(False):
        single = table_of(law)
        words = jax.eval_shape(partial(law.sample, m=3, n=7), KEY, single)
    assert (double.dtype, single.dtype, words.dtype) == (np.float64, np.float32, np.int32)
    for table, tolerance in ((double, 1e-9), (single, 2e-6)):
        assert table.shape == (V**order, V)
        log_p = np.asarray(table, float)
        p = np.exp(log_p)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12 if table is double else 1e-6)
        of_contexts = -np.sum(np.where(p > 0, p * log_p, 0.0), axis=1)
        np.testing.assert_allclose(of_contexts, entropy, rtol=0, atol=tolerance)


@pytest.mark.parametrize("order", [1, 2])
def test_contexts_differ_and_so_do_keys(order):
    law = language.Markov(V, 0.8, order)
    table = np.exp(table_of(law))
    assert len(np.unique(np.round(table, 12), axis=0)) == V**order
    assert len(np.unique(np.argmax(table, axis=1))) > 1
    assert not np.array_equal(table, np.exp(table_of(law, jax.random.key(4))))
    np.testing.assert_array_equal(table, np.exp(table_of(law)))


def contexts(words, V, order):
    """The number of each context, whose digits are its words, the last word the lowest digit, and the next word."""
    for sequence in np.asarray(words):
        for j in range(order, len(sequence)):
            context = sum(int(word) * V**digit for digit, word in enumerate(sequence[j - order : j][::-1]))
            yield context, int(sequence[j])


@pytest.mark.parametrize("order", [1, 2])
def test_words_follow_as_often_as_the_table_says(order):
    law = language.Markov(3, 0.9, order)
    table = table_of(law)
    counts = np.zeros((3**order, 3))
    for context, word in contexts(sampled(law, jax.random.key(8), table, m=200, n=100), 3, order):
        counts[context, word] += 1
    assert counts.sum() == 200 * (100 - order)
    expected = counts.sum(axis=1, keepdims=True) * np.exp(table)
    # Of 2 degrees of freedom a context; 6 standard deviations above the mean.
    freedom = 2 * 3**order
    assert counts.min() > 5
    assert np.sum((counts - expected) ** 2 / expected) < freedom + 6 * np.sqrt(2 * freedom)


def test_the_first_words_are_uniform_and_independent():
    law = language.Markov(3, 0.0, order=2)
    words = np.asarray(sampled(law, KEY, table_of(law), m=9000, n=3))
    counts = np.bincount(words[:, 0] * 3 + words[:, 1], minlength=9)
    assert np.sum((counts - 1000) ** 2 / 1000) < 8 + 6 * 4


@pytest.mark.parametrize("order", [1, 3])
def test_without_entropy_a_sequence_is_the_likeliest_word_of_every_context(order):
    law = language.Markov(4, 0.0, order)
    table = table_of(law)
    words = sampled(law, jax.random.key(1), table, m=20, n=12)
    likeliest = np.argmax(table, axis=1)
    assert all(word == likeliest[context] for context, word in contexts(words, 4, order))
    assert set(np.ravel(words)) <= set(range(4))


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
    with pytest.raises(ValueError, match=rf"^m, n: expected m >= 1 and n > order = 2, found {m} and {n}"):
        language.Markov(3, 0.5, 2).sample(KEY, jnp.zeros((9, 3)), m, n)
