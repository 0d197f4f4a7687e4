"""Single precision: what tensor processors have."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, data, descent, initial

SEEDS, STEPS = 16, 2000


# A few steps in single precision are among the fast tests of descent.
@pytest.mark.slow
@pytest.mark.parametrize("law", [initial.free, initial.factored])
def test_it_follows_the_direction_of_double_precision(law):
    keys = jax.random.split(jax.random.key(7), (2, SEEDS))
    problems = jax.vmap(partial(data.sphere, n=6, T=8, d=10))(keys[0])
    start = jax.vmap(partial(law, d=10))(keys[1])
    train = partial(descent.train_batch, optimizer=descent.normalized_gd(0.1, floor=0.0, penalty=0.0), steps=STEPS)
    double = attention.matrix(train(start, problems).weights)
    run = train(*jax.tree.map(lambda leaf: leaf.astype(np.float32), (start, problems)))
    floating = {leaf.dtype for leaf in jax.tree.leaves(run) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floating == {np.dtype(np.float32)}
    single = jnp.asarray(attention.matrix(run.weights), float)
    lengths = jnp.linalg.norm(single, axis=(1, 2)) * jnp.linalg.norm(double, axis=(1, 2))
    # Measured: 4e-11 for W, 2e-5 for (K, Q).
    assert np.max(1 - np.sum(single * double, axis=(1, 2)) / lengths) < 1e-4
