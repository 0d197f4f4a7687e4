"""The smoothness bound: no two gradients differ by more, and it is the paper's formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, losses, metrics, smoothness

SLOPE = jax.grad(losses.risk)


def ratio(key, problem, length, apart):
    """How far two gradients are apart for two W at this distance, one of them of this length."""
    first, second = jax.random.split(key)
    W = length * direction(first, problem.d)
    V = W + apart * direction(second, problem.d)
    return metrics.norm(SLOPE(W, problem) - SLOPE(V, problem)) / apart


def direction(key, d):
    W = jax.random.normal(key, (d, d))
    return W / metrics.norm(W)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_no_two_gradients_differ_by_more_than_the_bound(scale):
    def tried(key):
        data_key, *keys = jax.random.split(key, 41)
        sphere = data.sphere(data_key, 2, 3, 3)
        problem = Problem(X=scale * sphere.X, Z=sphere.Z, Y=sphere.Y, v=sphere.v)
        of_pairs = [
            jax.vmap(ratio, in_axes=(0, None, None, None))(jnp.stack(keys), problem, length, apart)
            for length, apart in ((0.0, 1e-3), (1.0, 1e-3), (1.0, 1.0), (10.0, 3.0))
        ]
        return jnp.max(jnp.stack(of_pairs)), smoothness.bound(problem)

    found, bound = jax.vmap(tried)(jax.random.split(jax.random.key(0), 100))
    assert np.all(np.asarray(found) <= np.asarray(bound))
    # Far from tight: 25 times and more.
    assert np.max(np.asarray(found / bound)) < 1 / 25


def test_the_steepest_case_of_one_input_is_within_the_bound():
    # Two opposite tokens along the head: the softmax bends as much as it can.
    problem = Problem(X=[[[1.0], [-1.0]]], Z=[[1.0]], Y=[1.0], v=[1.0])
    W = jnp.linspace(-3, 3, 601)[:, None, None]
    bends = jax.vmap(jax.hessian(losses.risk), in_axes=(0, None))(W, problem)
    assert 0.4 < np.abs(bends).max() < float(smoothness.bound(problem))


def test_the_bound_is_the_papers_formula():
    problem = data.sphere(jax.random.key(1), 3, 4, 5)
    head, tokens = np.linalg.norm(problem.v), np.array([np.linalg.norm(X, 2) for X in problem.X])
    a = head * np.linalg.norm(problem.Z, axis=1) ** 2 * tokens**3
    b = 0.5 * head * tokens + 3 * 2.0
    assert float(smoothness.bound(problem, bend=0.5, slope=2.0)) == pytest.approx(np.mean(np.multiply(a, b)), rel=1e-13)
