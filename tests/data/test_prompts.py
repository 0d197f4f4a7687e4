"""Laws of prompts: one query, and what a fixed matrix does to keys and scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import tokens
from jaxattn.data.prompts import keyed, shared_query

KEY = jax.random.key(3)


def test_all_inputs_have_one_unit_query_and_the_tokens_of_the_sphere_law():
    one = shared_query(KEY, n=3, T=4, d=5)
    np.testing.assert_array_equal(one.Z, np.tile(one.Z[:1], (3, 1)))
    assert float(jnp.linalg.norm(one.Z[0])) == pytest.approx(1.0)
    np.testing.assert_allclose(jnp.linalg.norm(one.X, axis=-1), 1.0)
    assert np.ptp(jnp.linalg.norm(shared_query(KEY, n=3, T=4, d=5, spread=0.5).X, axis=-1)) > 0.1


def test_a_fixed_matrix_changes_the_keys_and_not_the_scores():
    own, _ = jax.random.split(KEY)
    plain, mixed = shared_query(own, n=3, T=4, d=5), keyed(KEY, n=3, T=4, d=5)
    np.testing.assert_allclose(tokens.scores(mixed), tokens.scores(plain), atol=1e-10)
    assert float(jnp.abs(mixed.X - plain.X).max()) > 0.1


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (lambda: keyed(KEY, n=3, T=4, d=5, mixing=0.0), r"^mixing: expected"),
        (lambda: shared_query(KEY, n=3, T=1, d=5), r"^T: expected an integer of at least 2, found 1"),
        (lambda: shared_query(KEY, n=3, T=4, d=5, spread=-1.0), r"^spread: expected"),
    ],
)
def test_bad_arguments_are_named(law, message):
    with pytest.raises(ValueError, match=message):
        law()
