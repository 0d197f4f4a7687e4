"""The smoothness bound: no two gradients differ by more, and it is the paper's formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, losses
from jaxattn.descent import smoothness

RNG = np.random.default_rng(0)
PROBLEMS, PAIRS = 100, 40


@jax.jit
@jax.vmap
def ratios(problem, W, V):
    """How far the gradients at each pair of matrices are apart, by how far these are, of one problem."""
    slopes = jax.vmap(jax.grad(losses.risk), in_axes=(0, None))
    apart = slopes(W, problem) - slopes(V, problem)
    return jnp.linalg.norm(apart, axis=(1, 2)) / jnp.linalg.norm(W - V, axis=(1, 2)), smoothness.bound(problem)


def directions(*shape):
    drawn = RNG.normal(size=shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def matrices():
    return directions(PROBLEMS, PAIRS, 9).reshape(PROBLEMS, PAIRS, 3, 3)


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_no_two_gradients_differ_by_more_than_the_bound(scale):
    X, Z, v = directions(PROBLEMS, 2, 3, 3), directions(PROBLEMS, 2, 3), directions(PROBLEMS, 3)
    problems = Problem(X=scale * X, Z=Z, Y=RNG.choice([-1.0, 1.0], (PROBLEMS, 2)), v=v)
    tried = []
    for length, apart in ((0.0, 1e-3), (1.0, 1e-3), (1.0, 1.0), (10.0, 3.0)):
        W = length * matrices()
        found, bound = ratios(problems, W, W + apart * matrices())
        tried.append(np.max(found, axis=1))
    found = np.max(tried, axis=0)
    assert np.all(found <= np.asarray(bound))
    # Far from tight: 25 times and more.
    assert np.max(found / np.asarray(bound)) < 1 / 25


def test_the_steepest_case_of_one_input_is_within_the_bound():
    # Two opposite tokens along the head: the softmax bends as much as it can.
    problem = Problem(X=[[[1.0], [-1.0]]], Z=[[1.0]], Y=[1.0], v=[1.0])
    W = jnp.linspace(-3, 3, 601)[:, None, None]
    bends = jax.jit(jax.vmap(jax.hessian(losses.risk), in_axes=(0, None)))(W, problem)
    assert 0.4 < np.abs(bends).max() < float(smoothness.bound(problem))


def test_the_bound_is_the_papers_formula():
    problem = data.sphere(jax.random.key(1), 3, 4, 5)
    head, tokens = np.linalg.norm(problem.v), np.array([np.linalg.norm(X, 2) for X in problem.X])
    a = head * np.linalg.norm(problem.Z, axis=1) ** 2 * tokens**3
    b = 0.5 * head * tokens + 3 * 2.0
    assert float(smoothness.bound(problem, bend=0.5, slope=2.0)) == pytest.approx(np.mean(np.multiply(a, b)), rel=1e-13)
