"""Schedule-free descent against that of optax."""

import jax.numpy as jnp
import optax

from jaxattn import descent
from jaxattn.experiments.bias.averaging import schedule_free
from tests import instances
from tests.instances import assert_close, d


def test_it_is_that_of_optax():
    start, base = jnp.zeros((d, d)), optax.adam(0.1, b1=0.0, b2=0.95, eps=0.0)
    own = descent.train(start, instances.problem(), optimizer=schedule_free(base), steps=30)
    optax_own = descent.Exact(*optax.contrib.schedule_free(base, 0.1))
    expected = descent.train(start, instances.problem(), optimizer=optax_own, steps=30)
    assert_close(own.weights, expected.weights, rtol=1e-9)
