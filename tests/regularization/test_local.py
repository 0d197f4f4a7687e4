"""The local path satisfies first-order conditions and approaches the solution from which it starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import losses, metrics, regularization, svm, tokens
from tests.instances import problem

RADII = np.array([20.0, 100.0, 1000.0])


def test_the_path_of_the_optimal_tokens_is_the_global_one_and_approaches_their_solution():
    one = problem()
    W = svm.solve(svm.token_constraints(one, tokens.optimal(one))).W
    found = jax.jit(lambda W: regularization.local_path(one, RADII, W))(W)
    assert found.solved.all()
    np.testing.assert_allclose(np.linalg.norm(found.W, axis=(1, 2)), RADII)
    off = [float(1 - metrics.correlation(end, W)) for end in found.W]
    assert off[2] < 0.05 * off[1] < 0.05
    # Where rounding leaves the gradient as it is, it points along W.
    gradient = jax.jit(jax.grad(losses.risk))(found.W[0], one)
    assert float(metrics.correlation(-gradient, found.W[0])) > 1 - 1e-6


def test_radii_that_do_not_grow_are_refused():
    with pytest.raises(ValueError, match="radii: expected positive and increasing"):
        regularization.local_path(problem(), [2.0, 1.0], jnp.eye(5))
