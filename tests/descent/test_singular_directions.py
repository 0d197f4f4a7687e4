"""Gradients with other singular values, compared with LAPACK's decompositions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.descent.singular_directions import Product, reweighted
from tests.instances import lane, single, slow

# The rows of A (n, a) and B (n, b) are fewer or more than their columns; the last shape needs LAPACK.
SHAPES = [(1, 4, 4), (5, 7, 9), (6, 10, 4), (12, 10, 10), (3, 20, 30), (20, 18, 19)]
RARER = [(1, 4, 4), (12, 10, 10)]
# One seed goes another way than many only in its decomposition: by rotations, or by LAPACK.
ALONE = [SHAPES[1], SHAPES[-1]]
LANES = 5


def drawn(n, a, b, key=0):
    rng: Any = np.random.default_rng(key)
    return Product(*(rng.normal(size=(LANES, n, size)) for size in (a, b)))


def multiplied_out(pairs):
    return np.einsum("...na,...nb->...ab", *pairs)


def by_lapack(G, weights):
    U, s, Vt = np.linalg.svd(G, full_matrices=False)
    return (U * np.where(s > 1e-12 * s[..., :1], weights(s), 0)[..., None, :]) @ Vt


@jax.jit
def polar(*given):
    return reweighted(given, jnp.ones_like)


def unit(D):
    return D / np.linalg.norm(D, axis=(-2, -1), keepdims=True)


@pytest.mark.parametrize(
    ("shape", "weights"),
    [(SHAPES[1], np.sqrt), *(slow(one, np.ones_like) if one in RARER else (one, np.ones_like) for one in SHAPES)],
)
def test_products_and_matrices_give_the_directions_of_lapack_for_one_seed_and_for_many(shape, weights):
    pairs = drawn(*shape)
    G = multiplied_out(pairs)
    want = unit(by_lapack(G, weights))
    directions = jax.jit(lambda *given: reweighted(given, jnp.sqrt)) if weights is np.sqrt else polar
    for given in (pairs, G, Product(1e-200 * pairs.A, 1e-90 * pairs.B)):
        for found in jax.vmap(directions)(given, given):
            np.testing.assert_allclose(unit(found), want, rtol=0, atol=1e-13)
        if shape in ALONE:
            np.testing.assert_allclose(unit(directions(lane(given, 1))[0]), want[1], rtol=0, atol=1e-13)


def test_gradients_of_several_shapes_are_told_apart():
    given = [drawn(*shape) for shape in SHAPES[1:3]]
    for found, pairs in zip(jax.vmap(polar)(*given), given, strict=True):
        np.testing.assert_allclose(found, by_lapack(multiplied_out(pairs), np.ones_like), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [slow(one) if one in RARER else one for one in SHAPES[:-1]], ids=str)
def test_no_bit_of_a_lane_depends_on_the_others(shape):
    def directions(pairs):
        # Twice, as above: one program.
        return jax.vmap(polar)(pairs, pairs)[0]

    pairs, others = drawn(*shape), drawn(*shape, key=1)
    # A lane that needs more sweeps, and one that needs none.
    others.A[1] *= np.geomspace(1, 1e-9, shape[0])[:, None]
    others.A[2] = 0
    for own, other in zip(pairs, others, strict=True):
        other[0] = own[0]
    mixed = directions(others)
    np.testing.assert_array_equal(mixed[0], directions(pairs)[0])
    np.testing.assert_array_equal(mixed[2], 0)


def test_directions_of_rounding_errors_are_left_out_and_small_ones_count():
    rng: Any = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(10, 10)))[0] for _ in range(2))
    sizes = np.array([1, 1e-3, 1e-6, 1e-9, 1e-12])
    G: Any = (left[:, :5] * sizes) @ right[:, :5].T
    (found,) = polar(G)
    np.testing.assert_allclose(np.linalg.svd(found, compute_uv=False), [1] * 5 + [0] * 5, atol=1e-13)
    # Each direction is as accurate as its size against that of rounding errors.
    for k, size in enumerate(sizes):
        assert abs(left[:, k] @ found @ right[:, k] - 1) < 1e-3, size
    twice = Product(G[:3], G[[0, 1, 1]])
    assert np.linalg.matrix_rank(polar(twice)[0]) == 2


def test_single_precision_ends_and_is_as_accurate():
    pairs = drawn(6, 10, 10)
    (found,) = jax.vmap(polar)(single(pairs))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_lapack(multiplied_out(pairs), np.ones_like), rtol=0, atol=1e-5)
