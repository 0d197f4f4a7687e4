"""The bound of the smoothness, and the largest eigenvalue of a second derivative with its evidence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, losses
from jaxattn.descent import curvature, smoothness
from tests.instances import slow

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


def of_spectrum(values, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return jnp.asarray(basis * values @ basis.T)


@partial(jax.jit, static_argnames="iterations")
def largest(H, key=jax.random.key(0), iterations=12):  # noqa: B008
    return curvature.largest(lambda x: x.ravel() @ H @ x.ravel() / 2 + jnp.sum(x), jnp.ones((3, 4)), key, iterations)


@pytest.mark.parametrize(
    ("spectrum", "wanted"),
    [
        (np.arange(12.0), 11.0),
        (np.arange(-12.0, 0), -12.0),
        (np.r_[-3.0, np.zeros(10), 2.0], -3.0),  # The space that the start spans is soon exhausted.
        (1e-200 * np.arange(12.0), 11e-200),
        (1e150 * np.arange(12.0), 11e150),
        (np.zeros(12), 0.0),
    ],
)
def test_the_eigenvalue_of_largest_size_is_found_with_its_vector(spectrum, wanted):
    H = of_spectrum(spectrum)
    found = largest(H)
    assert float(found.value) == pytest.approx(wanted, rel=1e-10)
    assert float(found.residual) <= 1e-6 * abs(wanted)
    u = np.asarray(found.direction)
    assert u.shape == (3, 4)
    np.testing.assert_allclose(np.linalg.norm(u), 1, rtol=1e-12)
    np.testing.assert_allclose(H @ u.ravel(), wanted * u.ravel(), rtol=0, atol=1e-6 * abs(wanted))


def test_eigenvalues_of_equal_size_and_opposite_sign_are_no_obstacle():
    assert abs(float(largest(of_spectrum(np.r_[-5.0, np.linspace(-1, 1, 10), 5.0])).value)) == pytest.approx(5)


@pytest.mark.parametrize("iterations", [1, 2, 4, slow(7)])
def test_stopped_early_it_is_a_lower_bound_and_some_eigenvalue_is_within_the_residual(iterations):
    spectrum = np.linspace(-1, 1.5, 12)
    for seed in range(5):
        found = largest(of_spectrum(spectrum, seed), jax.random.key(seed), iterations)
        assert abs(float(found.value)) <= 1.5 + 1e-12
        assert np.min(np.abs(spectrum - float(found.value))) <= float(found.residual) + 1e-12


def test_a_lane_is_what_it_is_alone():
    H = jnp.stack([of_spectrum(np.arange(12.0), seed) for seed in range(3)])
    np.testing.assert_allclose(jax.vmap(largest)(H).value, 11, rtol=1e-12)
