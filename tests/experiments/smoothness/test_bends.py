"""How risks of a text bend: drawn W, descents, and the largest step that descends, on functions known in full."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, language
from jaxattn.experiments.smoothness import bends


def quadratic(x, H):
    return jnp.sum(x * (H @ x)) / 2


@partial(jax.jit, static_argnames=("steps", "points", "halvings"))
def largest_step(H, low, high, steps, points, halvings):
    return bends.largest_step(partial(quadratic, H=H), jnp.ones(H.shape), low, high, steps, points, halvings)


@pytest.mark.parametrize("low", [1e-3, 1e-2])
def test_the_largest_step_on_a_quadratic_is_two_over_its_curvature(low):
    found = largest_step(jnp.diag(jnp.asarray([3.0, 1.0, 0.5])), low, 50.0, 500, 24, 12)
    assert 2 / 3 * (1 - 1e-3) < float(found.step) <= 2 / 3 * (1 + 1e-6)
    grid = np.geomspace(low, 50.0, 24)
    np.testing.assert_array_equal(found.descends, grid < 2 / 3)
    np.testing.assert_array_equal(found.exceeds, grid > 2 / 3)


def test_a_threshold_outside_of_what_is_searched_is_told():
    beyond = largest_step(jnp.eye(2), 0.01, 1.0, 50, 5, 3)
    assert float(beyond.step) == pytest.approx(1.0)
    assert np.all(beyond.descends)
    below = largest_step(jnp.eye(2), 3.0, 9.0, 50, 5, 3)
    assert float(below.step) == pytest.approx(3.0)
    assert not np.any(below.descends)
    assert np.all(below.exceeds)


def test_a_step_that_ends_in_no_number_does_not_descend():
    def function(x):
        return jnp.where(jnp.max(jnp.abs(x)) > 3, jnp.nan, jnp.sum(x**2))

    searched = partial(bends.largest_step, function, steps=20, points=3, halvings=2)
    found = jax.jit(searched)(jnp.ones((1, 1)), low=jnp.asarray(0.1), high=jnp.asarray(10.0))
    assert np.asarray(found.descends).tolist() == [True, True, False]
    assert np.asarray(found.exceeds).tolist() == [False, False, True]


@pytest.mark.slow
def test_drawn_weights_have_their_lengths_and_every_other_one_ties_two_words():
    one, words = data.language(jax.random.key(0), 4, 3, 6, 4, 0.2), jax.random.key_data(jax.random.key(3))
    W = np.asarray(bends.drawn(one, words, jnp.asarray(20.0), jnp.asarray(40.0), 20))
    lengths = np.linalg.norm(W, axis=(1, 2))
    assert 20 <= lengths.min() < 25 < 35 < lengths.max() <= 40
    ranks = [np.linalg.matrix_rank(each, 1e-8) for each in W]
    assert ranks == [6, 1] * 10
    for each in W[1::2]:
        # Some input sees two words that differ by no more than 6, in all lengths.
        logits = np.asarray(language.logits(jnp.asarray(each), one))
        of_next = np.take_along_axis(logits, np.asarray(one.next)[:, None], 1)
        apart = np.where(np.asarray(one.others), np.abs(logits - of_next), np.inf)
        assert apart.min() < 8


def test_descent_is_kept_where_it_is_asked_for():
    H = jnp.diag(jnp.asarray([1.0, 0.5]))
    kept = bends.descent(partial(quadratic, H=H), jnp.ones((2, 2)), jnp.asarray(0.1), jnp.asarray([1, 4, 9]))
    expected = np.array([0.9, 0.95]) ** np.array([[1], [4], [9]])
    np.testing.assert_allclose(kept[:, [0, 1], [0, 1]], expected, rtol=1e-12)
