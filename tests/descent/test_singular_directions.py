"""Gradients with other singular values, compared with LAPACK's decompositions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn.descent.singular_directions import Product, reweighted
from tests.descent.cases import slow

# The rows of A (n, a) and B (n, b) are fewer or more than their columns; the last shape needs LAPACK.
SHAPES = [(1, 4, 4), (5, 7, 9), (6, 10, 4), (12, 10, 10), (3, 20, 30), (20, 18, 19)]
RARER = [(1, 4, 4), (12, 10, 10)]
LANES = 5


def drawn(n, a, b, key=0):
    rng = np.random.default_rng(key)
    return Product(*(jnp.asarray(rng.normal(size=(LANES, n, size))) for size in (a, b)))


def lane(leaves, i):
    return jax.tree.map(lambda leaf: leaf[i], leaves)


def multiplied_out(pairs):
    return jnp.einsum("...na,...nb->...ab", *pairs)


def by_lapack(G, weights):
    U, s, Vt = np.linalg.svd(G, full_matrices=False)
    return (U * np.where(s > 1e-12 * s[..., :1], weights(s), 0)[..., None, :]) @ Vt


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
    compiled = jax.jit(lambda *given: reweighted(given, jnp.sqrt if weights is np.sqrt else jnp.ones_like))
    for given in (pairs, G, Product(1e-200 * pairs.A, 1e-90 * pairs.B)):
        for found in jax.vmap(compiled)(given, given):
            np.testing.assert_allclose(unit(found), want, rtol=0, atol=1e-13)
        np.testing.assert_allclose(unit(compiled(lane(given, 1))[0]), want[1], rtol=0, atol=1e-13)


@jax.jit
def polar(*given):
    return reweighted(given, jnp.ones_like)


def test_gradients_of_several_shapes_are_told_apart():
    given = [drawn(*shape) for shape in SHAPES[1:3]]
    for found, pairs in zip(jax.vmap(polar)(*given), given, strict=True):
        np.testing.assert_allclose(found, by_lapack(multiplied_out(pairs), np.ones_like), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [slow(one) if one in RARER else one for one in SHAPES[:-1]], ids=str)
def test_no_bit_of_a_lane_depends_on_the_others(shape):
    directions = jax.vmap(lambda G: polar(G)[0])
    pairs, others = drawn(*shape), drawn(*shape, key=1)
    # A lane that needs more sweeps, and one that needs none.
    others = Product(others.A.at[1].mul(jnp.geomspace(1, 1e-9, shape[0])[:, None]).at[2].set(0), others.B)
    mixed = jax.tree.map(lambda own, other: other.at[0].set(own[0]), pairs, others)
    np.testing.assert_array_equal(directions(mixed)[0], directions(pairs)[0])
    np.testing.assert_array_equal(directions(mixed)[2], 0)


def test_directions_of_rounding_errors_are_left_out_and_small_ones_count():
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(10, 10)))[0] for _ in range(2))
    sizes = np.array([1, 1e-3, 1e-6, 1e-9, 1e-12])
    G = (left[:, :5] * sizes) @ right[:, :5].T
    (found,) = polar(jnp.asarray(G))
    np.testing.assert_allclose(np.linalg.svd(found, compute_uv=False), [1] * 5 + [0] * 5, atol=1e-13)
    # Each direction is as accurate as its size against that of rounding errors.
    for k, size in enumerate(sizes):
        assert abs(left[:, k] @ found @ right[:, k] - 1) < 1e-3, size
    twice = Product(jnp.asarray(G[:3]), jnp.asarray(G[[0, 1, 1]]))
    assert np.linalg.matrix_rank(polar(twice)[0]) == 2


def test_single_precision_ends_and_is_as_accurate():
    pairs = drawn(6, 10, 10)
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), pairs)
    (found,) = jax.vmap(polar)(single)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_lapack(multiplied_out(pairs), np.ones_like), rtol=0, atol=1e-5)
