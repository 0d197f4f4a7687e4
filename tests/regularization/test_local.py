"""The local path satisfies first-order conditions and approaches the solution from which it starts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import losses, metrics, regularization, svm, tokens
from tests.instances import problem

RADII = np.array([100.0, 1000.0])


def test_the_path_of_the_optimal_tokens_is_the_global_one_and_approaches_their_solution():
    one = problem()
    W = svm.solve(svm.token_constraints(one, tokens.optimal(one))).W
    found = jax.jit(lambda W: regularization.local_path(one, RADII, W))(W)
    assert found.solved.all()
    np.testing.assert_allclose(np.linalg.norm(found.W, axis=(1, 2)), RADII)
    off = [float(1 - metrics.correlation(end, W)) for end in found.W]
    assert off[1] < 0.05 * off[0] < 0.05


@pytest.mark.slow
def test_a_point_of_the_path_has_a_gradient_along_it():
    one = problem()
    W = svm.solve(svm.token_constraints(one, tokens.optimal(one))).W
    end = regularization.local_path(one, np.array([20.0]), W).W[0]
    assert float(metrics.correlation(-jax.grad(losses.risk)(end, one), end)) > 1 - 1e-6


def test_radii_that_do_not_grow_are_refused():
    with pytest.raises(ValueError, match="radii: expected positive and increasing"):
        regularization.local_path(problem(), [2.0, 1.0], jnp.eye(5))
