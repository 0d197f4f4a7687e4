"""The law of texts: what is drawn from which key."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxattn import data, language

KEY = jax.random.key(5)
SIZES: dict[str, Any] = {"m": 4, "n": 6, "d": 3, "V": 5, "entropy": 0.7}
LAW = jax.jit(partial(data.language, **SIZES))


@pytest.mark.slow
def test_embeddings_are_unit_vectors_and_prefixes_those_of_the_sequences():
    choices = LAW(KEY)
    assert (choices.E.shape, choices.last.shape) == ((5, 3), (20,))
    np.testing.assert_allclose(np.linalg.norm(choices.E, axis=1), 1, rtol=1e-14)
    last, following = (np.asarray(words).reshape(4, 5) for words in (choices.last, choices.next))
    np.testing.assert_array_equal(last[:, 1:], following[:, :-1])
    assert choices.counts is None
    np.testing.assert_array_equal(choices.weight, 1)


def test_words_embeddings_and_language_have_keys_of_their_own():
    choices = LAW(KEY)
    for name, other in (("d", 7), ("entropy", 0.2)):
        changed = jax.jit(partial(data.language, **dict(SIZES, **{name: other})))(KEY)
        same_E = changed.E.shape == choices.E.shape and np.allclose(changed.E, choices.E)
        assert same_E is (name != "d")
        same_words = np.array_equal(changed.last, choices.last) and np.array_equal(changed.next, choices.next)
        assert same_words is (name == "d")


def test_embeddings_are_uniform_on_the_sphere():
    E = np.asarray(jax.jit(jax.vmap(lambda key: LAW(key).E))(jax.random.split(KEY, 1000))).reshape(-1, 3)
    np.testing.assert_allclose(E.mean(axis=0), 0, atol=4 / np.sqrt(3 * len(E)))
    np.testing.assert_allclose(E.T @ E / len(E), np.eye(3) / 3, atol=0.03)


@pytest.mark.parametrize("order", [1, 2])
def test_without_entropy_equal_contexts_have_equal_next_words(order):
    choices = jax.jit(partial(data.language, m=8, n=9, d=3, V=4, entropy=0.0, order=order))(KEY)
    last, following = (np.asarray(words).reshape(8, 8) for words in (choices.last, choices.next))
    sequences = np.concatenate([last, following[:, -1:]], axis=1)
    seen = {}
    for sequence in sequences:
        for j in range(order, 9):
            context = tuple(sequence[j - order : j])
            assert seen.setdefault(context, sequence[j]) == sequence[j]
    assert len(seen) > 2


def test_single_precision_is_drawn_while_x64_is_off_and_candidates_are_passed_on():
    with jax.enable_x64(False):
        choices = jax.jit(partial(data.language, **SIZES, candidates=language.prefix))(jax.random.key(5))
    assert {np.asarray(leaf).dtype.name for leaf in (choices.E, choices.weight, choices.counts)} == {"float32"}
    of_prefixes = np.asarray(choices.counts).sum(axis=1).reshape(4, 5)
    np.testing.assert_array_equal(of_prefixes, np.tile(np.arange(1, 6), (4, 1)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": 0}, r"^m: expected an integer of at least 1, found 0"),
        ({"d": 0}, r"^d: expected an integer of at least 1, found 0"),
        ({"n": 1}, r"^m, n: expected m >= 1 and n > order = 1, found 4 and 1"),
    ],
)
def test_sizes_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(partial(data.language, **SIZES | changes), KEY)
