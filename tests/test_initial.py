"""Laws of the initial weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, initial
from tests.instances import assert_close, lane

KEY = jax.random.key(3)
LAWS = [initial.free, initial.factored, initial.free_zero, initial.factored_zero]


def test_full_is_uniform_within_one_over_root_d():
    W = np.asarray(initial.free(KEY, 100))
    assert W.shape == (100, 100)
    assert 0.099 < np.abs(W).max() <= 0.1
    assert abs(W.mean()) < 4 * 0.1 / np.sqrt(3) / 100
    np.testing.assert_allclose(W.std(), 0.1 / np.sqrt(3), rtol=0.02)


@pytest.mark.parametrize(("m", "width"), [(None, 6), (1, 1), (9, 9)])
def test_factored_is_uniform_within_one_over_root_d_and_m_wide(m, width):
    K, Q = initial.factored(KEY, 6, m)
    assert K.shape == Q.shape == (6, width)
    assert max(np.abs(K).max(), np.abs(Q).max()) <= 6**-0.5


def test_factors_have_keys_of_their_own():
    K, Q = initial.factored(KEY, 100)
    assert abs(np.corrcoef(np.ravel(K), np.ravel(Q))[0, 1]) < 0.05


def test_zero_weights_are_zero_and_their_factors_can_still_descend():
    np.testing.assert_array_equal(initial.free_zero(KEY, 6), jnp.zeros((6, 6)))
    start = initial.factored_zero(KEY, 50, scale=0.3)
    np.testing.assert_array_equal(start.W, jnp.zeros((50, 50)))
    np.testing.assert_allclose(np.std(start.K), 0.3, rtol=0.06)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_key_fixes_the_weights_and_lanes_are_lone_draws(law):
    keys = jax.random.split(KEY, 2)
    assert_close(law(KEY, 6), law(KEY, 6), rtol=0)
    lanes = jax.jit(jax.vmap(lambda key: law(key, 6)))(keys)
    for i in range(2):
        assert_close(lane(lanes, i), law(keys[i], 6))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_single_precision_is_drawn_while_x64_is_off(law):
    with jax.enable_x64(False):
        weights = jax.eval_shape(lambda key: law(key, 6), KEY)
        matrix = jax.eval_shape(attention.matrix, weights)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(weights)} == {"float32"}
    assert matrix.shape == (6, 6)


@pytest.mark.parametrize("m", [0, -1])
def test_a_width_of_less_than_one_is_refused(m):
    with pytest.raises(ValueError, match=rf"^m: expected a width of at least 1, found {m}"):
        initial.factored(KEY, 6, m)
