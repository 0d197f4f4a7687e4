"""Laws of the tokens to select."""

import jax
import numpy as np

from jaxattn import tokens
from jaxattn.data import selection
from tests import instances

KEYS = jax.random.split(jax.random.key(4), 4000)


def test_optimal_selects_the_tokens_of_highest_score_whatever_the_key():
    problem = instances.problem()
    for key in KEYS[:2]:
        np.testing.assert_array_equal(selection.optimal_tokens(key, problem), tokens.optimal(problem))


def test_uniform_selects_every_token_equally_often_and_inputs_independently():
    drawn = np.asarray(jax.vmap(selection.uniform_tokens, in_axes=(0, None))(KEYS, instances.problem()))
    assert drawn.shape == (len(KEYS), instances.n)
    shares = np.stack([(drawn == t).mean(axis=0) for t in range(instances.T)])
    np.testing.assert_allclose(shares, 1 / instances.T, atol=4 * np.sqrt(0.1875 / len(KEYS)))
    correlation = np.corrcoef(drawn.T) - np.eye(instances.n)
    assert np.abs(correlation).max() < 4 / np.sqrt(len(KEYS))


def test_a_key_fixes_the_selection():
    one = instances.problem()
    np.testing.assert_array_equal(selection.uniform_tokens(KEYS[0], one), selection.uniform_tokens(KEYS[0], one))
