"""gamma_2 and its dual: closed forms, bounds that any factorization gives, duality, and what rounding may not do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import factorization
from jaxattn.norms import named
from tests.instances import slow

RNG = np.random.default_rng(0)
VALUE, DUAL, MAXIMIZER = map(jax.jit, (factorization.value, factorization.dual, factorization.maximizer))
SHAPE = (4, 4)


def padded(W):
    """A matrix of the one shape that the tests compile for."""
    W = np.asarray(W, float)
    return jnp.asarray(np.pad(W, [(0, own - given) for own, given in zip(SHAPE, W.shape, strict=True)]))


HADAMARD = np.array([[1, 1], [1, -1.0]])
KNOWN = {
    "zero": (np.zeros((2, 2)), 0.0, 0.0),
    "one": (np.ones((1, 1)), 1.0, 1.0),
    # Inner products of orthonormal vectors; <I, W> is the sum of d entries of at most 1.
    "identity": (np.eye(4), 1.0, 4.0),
    "diagonal": (np.diag([3.0, -1.0, 2.0, 0.5]), 3.0, 6.5),
    # x y^T has the largest entries' product; its dual norm is that of all entries' sizes.
    "rank one": (np.outer([1.0, -2.0, 0.5], [3.0, 1.0, -1.0, 2.0]), 6.0, 24.5),
    # A sign matrix with orthogonal rows of length sqrt(2); the Tsirelson bound.
    "Hadamard": (HADAMARD, 2**0.5, 8**0.5),
    "Hadamard of four": (np.kron(HADAMARD, HADAMARD), 2.0, 8.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_closed_forms(name):
    W, value, dual = KNOWN[name]
    np.testing.assert_allclose(VALUE(padded(W)), value, rtol=1e-11)
    np.testing.assert_allclose(DUAL(padded(W)), dual, rtol=1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_both_err_upwards_and_by_little(seed):
    """Any matrix of inner products of unit vectors bounds the dual from below, any p and q the value."""
    rng = np.random.default_rng(seed)
    # With rows of very different sizes, one of zeros, or a low rank.
    W = rng.normal(size=SHAPE) * np.exp(4 * rng.normal(size=(4, 1)))
    if seed % 3 == 1:
        W[1] = 0.0
    if seed % 3 == 2:
        W = W[:, :2] @ rng.normal(size=(2, 4))
    above = float(VALUE(padded(W)))
    direction = np.asarray(MAXIMIZER(padded(W)))
    reached = float(np.sum(direction * W))
    length = float(VALUE(padded(direction)))
    assert length <= 1 + 1e-10
    assert reached / length * (1 - 1e-12) <= DUAL(padded(W)) <= reached * (1 + 1e-10)
    best = max(
        np.linalg.norm(np.sqrt(p)[:, None] * W * np.sqrt(q), "nuc") for p, q in rng.dirichlet(np.ones(4), size=(200, 2))
    )
    assert best <= above
    assert abs(np.sum(W * direction)) <= above * float(DUAL(padded(direction)))


@pytest.mark.parametrize("shape", [(5, 3), slow((3, 5))])
def test_it_is_what_clarabel_finds(shape):
    cp = pytest.importorskip("cvxpy")
    W = RNG.normal(size=shape)
    d = shape[0]
    X = cp.Variable((sum(shape),) * 2, PSD=True)
    value = cp.Problem(cp.Minimize(cp.max(cp.diag(X))), [X[:d, d:] == W]).solve(solver="CLARABEL")
    dual = cp.Problem(cp.Maximize(cp.sum(cp.multiply(W, X[:d, d:]))), [cp.diag(X) == 1]).solve(solver="CLARABEL")
    np.testing.assert_allclose(VALUE(jnp.asarray(W)), value, rtol=1e-6)
    np.testing.assert_allclose(DUAL(jnp.asarray(W)), dual, rtol=1e-6)


def test_scale_transpose_signs_and_zeros_change_nothing():
    W = RNG.normal(size=(3, 3))
    expected = VALUE(padded(W)), DUAL(padded(W))
    signs = np.outer([1, -1, 1], [-1, -1, 1])
    for other in (W.T, W[::-1], W * signs):
        np.testing.assert_allclose(VALUE(padded(other)), expected[0], rtol=1e-11)
        np.testing.assert_allclose(DUAL(padded(other)), expected[1], rtol=1e-11)
    for c in (1e-200, 1e200):
        np.testing.assert_allclose(VALUE(c * padded(W)), c * expected[0], rtol=1e-11)
        np.testing.assert_allclose(DUAL(c * padded(W)), c * expected[1], rtol=1e-11)


@pytest.mark.slow
def test_it_lies_between_the_largest_entry_and_the_largest_rows_and_columns():
    lanes = jnp.asarray(RNG.normal(size=(20, *SHAPE)))
    values = jax.vmap(factorization.value)(lanes)
    assert (values >= jax.vmap(named("max").value)(lanes)).all()
    for upper in ("2,inf", "2,inf of columns", "nuclear"):
        assert (values <= jax.vmap(named(upper).value)(lanes) * (1 + 1e-11)).all()
    # Lanes are what each is alone.
    np.testing.assert_allclose(values[3], VALUE(lanes[3]), rtol=1e-11)
