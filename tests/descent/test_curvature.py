"""The largest eigenvalue of a second derivative: against the eigenvalues of the matrix, with its evidence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.descent import curvature

KEY = jax.random.key(0)


def of_spectrum(values, seed=0):
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return jnp.asarray(basis * values @ basis.T)


def quadratic(x, H):
    return x.ravel() @ H @ x.ravel() / 2 + jnp.sum(x)


@jax.jit
def largest(H):
    return curvature.largest(partial(quadratic, H=H), jnp.ones((3, 4)), KEY, 12)


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


@pytest.mark.parametrize("iterations", [1, 2, 4, 7])
def test_stopped_early_it_is_a_lower_bound_and_some_eigenvalue_is_within_the_residual(iterations):
    spectrum = np.linspace(-1, 1.5, 12)
    for seed in range(5):
        function = partial(quadratic, H=of_spectrum(spectrum, seed))
        found = curvature.largest(function, jnp.zeros(12), jax.random.key(seed), iterations)
        assert abs(float(found.value)) <= 1.5 + 1e-12
        assert np.min(np.abs(spectrum - float(found.value))) <= float(found.residual) + 1e-12


@pytest.mark.slow
def test_it_is_that_of_the_second_derivative_where_it_is_asked_for():
    def function(x):
        return jnp.sum(jnp.sin(x)) + jnp.prod(x)

    x = jnp.asarray([0.3, -1.1, 2.0])
    values = np.linalg.eigvalsh(jax.hessian(function)(x))
    wanted = values[np.argmax(np.abs(values))]
    assert float(curvature.largest(function, x, KEY).value) == pytest.approx(wanted)


def test_a_lane_is_what_it_is_alone():
    H = jnp.stack([of_spectrum(np.arange(12.0), seed) for seed in range(3)])
    np.testing.assert_allclose(jax.vmap(largest)(H).value, 11, rtol=1e-12)


def test_no_iteration_is_refused():
    with pytest.raises(ValueError, match="iterations: expected at least 1, found 0"):
        curvature.largest(jnp.sum, jnp.ones(2), KEY, 0)
