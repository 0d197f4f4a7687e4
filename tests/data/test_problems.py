"""Data laws: the distribution, independent draws, reproducibility, and sizes out of range."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, tokens
from tests.instances import assert_close

KEY = jax.random.key(7)
LAWS = {
    "sphere": partial(data.sphere, n=3, T=4, d=5),
    "spread": partial(data.spread_scores, n=3, T=4, d=5, spread=0.3),
    "three": data.three_tokens,
    "five": data.five_tokens,
    "mlp": partial(data.mlp, n=3, T=4, d=5, width=6),
    "orthonormal": partial(data.orthonormal, n=3, T=4, d=5),
}
# Further spreads, of which only many draws are looked at.
SPREADS = {spread: partial(data.spread_scores, n=3, T=4, d=5, spread=spread) for spread in (0.0, 1.0)}
SPREADS[0.3] = LAWS["spread"]
MANY = 4000


KEYS = jax.random.split(KEY, MANY)


@cache
def many_of(law: data.Law) -> Problem:
    return jax.jit(jax.vmap(law))(KEYS)


def draws(law: str) -> Problem:
    """Many draws of one law."""
    return many_of(LAWS[law])


scores_of = jax.jit(jax.vmap(tokens.scores))


@pytest.mark.parametrize(("n", "T", "d"), [(1, 2, 1), (3, 4, 5)])
def test_sphere_draws_unit_vectors_and_signs(n, T, d):
    problem = jax.jit(partial(data.sphere, n=n, T=T, d=d))(KEY)
    assert (problem.X.shape, problem.Z.shape, problem.Y.shape, problem.v.shape) == ((n, T, d), (n, d), (n,), (d,))
    for vectors in (problem.X, problem.Z, problem.v):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-14)
    assert set(np.asarray(problem.Y)) <= {1.0, -1.0}


@pytest.mark.parametrize("name", ["X", "Z", "v"])
def test_directions_on_the_sphere_are_uniform(name):
    vectors = np.asarray(getattr(draws("sphere"), name)).reshape(MANY, -1, 5)[:, -1]
    # Uniform on the sphere: mean zero and covariance I / 5, and a uniform angle in every plane.
    assert np.all(np.abs(vectors.mean(axis=0)) < 4 / np.sqrt(5 * MANY))
    np.testing.assert_allclose(vectors.T @ vectors / MANY, np.eye(5) / 5, atol=4 / np.sqrt(15 * MANY))
    angle = np.arctan2(vectors[:, 1], vectors[:, 0])
    for k in (1, 2, 3, 4):
        for wave in (np.cos, np.sin):
            assert abs(wave(k * angle).mean()) < 4 * np.sqrt(0.5 / MANY)


def test_labels_are_fair_and_independent_of_each_other():
    Y = np.asarray(draws("sphere").Y)
    assert np.all(np.abs(Y.mean(axis=0)) < 4 / np.sqrt(MANY))
    assert abs((Y[:, 0] * Y[:, 1]).mean()) < 4 / np.sqrt(MANY)


def test_arrays_are_drawn_independently_of_each_other():
    many = draws("sphere")
    flat = [np.asarray(leaf).reshape(MANY, -1) for leaf in (many.X, many.Z, many.Y, many.v)]
    moments = np.corrcoef(np.concatenate(flat, axis=1).T)
    np.fill_diagonal(moments, 0)
    assert np.max(np.abs(moments)) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("law", LAWS)
def test_a_key_fixes_the_problem_and_another_key_changes_all_of_it(law):
    first, again, other = map(jax.jit(LAWS[law]), (KEY, KEY, jax.random.key(8)))
    assert_close(again, first, rtol=0)
    for name in "XZ" if law == "spread" else "XZv":  # Whose head direction is the first axis.
        # The last entries: the first tokens of the five-token law stand where they stand.
        assert np.all(np.abs(np.asarray(getattr(other, name) - getattr(first, name)).ravel()[-2:]) > 1e-6), name


def test_three_tokens_stand_left_and_right_with_positive_labels():
    many = draws("three")
    assert many.X.shape == (MANY, 2, 3, 2)
    mean, spread = np.asarray(many.X).mean(axis=(0, 2)), np.asarray(many.X).std(axis=(0, 2))
    np.testing.assert_allclose(mean, [[-1, 0], [1, 0]], atol=4 * 0.3 / np.sqrt(3 * MANY))
    np.testing.assert_allclose(spread, 0.3, rtol=0.03)
    np.testing.assert_array_equal(many.Y, 1)


def test_five_tokens_set_the_first_apart_from_the_rest():
    many = draws("five")
    assert many.X.shape == (MANY, 2, 5, 2)
    np.testing.assert_array_equal(many.X[:, :, 0], np.broadcast_to([[1, 0.5], [1, -0.5]], (MANY, 2, 2)))
    others = np.asarray(many.X[:, :, 1:])
    np.testing.assert_allclose(others.mean(axis=(0, 2)), [[-1, 0]] * 2, atol=4 * 0.5 / np.sqrt(4 * MANY))
    np.testing.assert_allclose(others.std(axis=(0, 2)), 0.5, rtol=0.03)


def test_the_plane_laws_draw_unit_queries_and_heads():
    for law in ("three", "five"):
        for vectors in (draws(law).Z, draws(law).v):
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-14)


def test_a_layer_is_a_normal_matrix_of_frobenius_norm_one():
    many = draws("mlp")
    assert many.v.shape == (MANY, 5, 6)
    np.testing.assert_allclose(np.linalg.norm(many.v, axis=(1, 2)), 1, rtol=1e-14)
    flat = np.asarray(many.v).reshape(MANY, -1)
    np.testing.assert_allclose(flat.T @ flat / MANY, np.eye(30) / 30, atol=5 / 30 / np.sqrt(MANY) * np.sqrt(2))
    for vectors in (many.X, many.Z):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, rtol=1e-14)
    assert jax.eval_shape(partial(data.mlp, n=3, T=4, d=5), KEY).v.shape == (5, 5)


def test_orthonormal_tokens_are_orthonormal_and_uniform():
    many = draws("orthonormal")
    X = np.asarray(many.X)
    np.testing.assert_allclose(X @ np.swapaxes(X, -1, -2), np.broadcast_to(np.eye(4), (MANY, 3, 4, 4)), atol=1e-14)
    np.testing.assert_array_equal(many.Y, 1)
    # A turn of the space changes no moment: mean zero, and the projection on the tokens' span has the mean T / d.
    assert np.all(np.abs(X.mean(axis=0)) < 5 / np.sqrt(5 * MANY))
    np.testing.assert_allclose(np.einsum("sntd,snte->de", X, X) / MANY / 3, 0.8 * np.eye(5), atol=0.02)
    for place in range(4):  # Also of a single token, so the signs are fair and the order means nothing.
        second = np.einsum("snd,sne->de", X[:, :, place], X[:, :, place]) / MANY / 3
        np.testing.assert_allclose(second, np.eye(5) / 5, atol=0.02)


def test_single_precision_is_drawn_while_x64_is_off():
    with jax.enable_x64(False):
        problem = jax.jit(LAWS["sphere"])(KEY)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(problem)} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 5])
def test_an_embedded_problem_is_the_problem_itself_and_zeros(d):
    embedded, alone = data.Spheres(n=3, T=4, d=[1, 5, 7])(KEY, jnp.asarray(d)), data.sphere(KEY, 3, 4, d)
    assert embedded.X.shape == (3, 4, 7)
    for name in "XZv":
        array = np.asarray(getattr(embedded, name))
        np.testing.assert_allclose(array[..., :d], getattr(alone, name), rtol=0, atol=1e-15)
        assert not array[..., d:].any()
    np.testing.assert_array_equal(embedded.Y, alone.Y)


def test_tokens_of_one_dimension_are_equal_or_opposite_to_the_last_bit():
    law = data.Spheres(n=3, T=4, d=[1, 7])
    X = jax.jit(jax.vmap(law, in_axes=(0, None)))(KEYS[:200], jnp.asarray(1)).X
    np.testing.assert_array_equal(np.unique(X), [-1.0, 0.0, 1.0])


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
def test_scores_are_pulled_together_to_their_spread(spread):
    pulled, free = (jax.tree.map(lambda leaf: leaf[:200], many_of(SPREADS[one])) for one in (spread, 1.0))
    np.testing.assert_allclose(np.linalg.norm(pulled.X, axis=-1), 1, rtol=1e-14)
    before, after = (np.asarray(scores_of(many)) for many in (free, pulled))
    best = before.argmax(axis=-1)
    np.testing.assert_array_equal(after.argmax(axis=-1), best)
    others = np.arange(4) != best[..., None]
    np.testing.assert_array_equal(after[~others], before[~others])
    rest = [scores[others].reshape(200, 3, 3) for scores in (before, after)]
    means = [scores.mean(axis=-1, keepdims=True) for scores in rest]
    np.testing.assert_allclose(rest[1] - means[1], spread * (rest[0] - means[0]), atol=1e-15)
    np.testing.assert_allclose(means[1], means[0], atol=1e-15)
    if spread == 0:  # To the last bit: where the attention leaves the optimal token, a rounding error would decide.
        assert np.all(rest[1] == rest[1][..., :1])


def test_scores_as_drawn_are_those_of_the_sphere():
    both = many_of(SPREADS[1.0]), draws("sphere")
    ours, theirs = (np.sort(scores_of(many), axis=-1).mean(axis=(0, 1)) for many in both)
    np.testing.assert_allclose(ours, theirs, atol=4 * np.sqrt(2 / (5 * 3 * MANY)))


@pytest.mark.parametrize(
    ("law", "sizes", "message"),
    [
        (data.sphere, (KEY, 0, 4, 5), "n: expected an integer of at least 1, found"),
        (data.sphere, (KEY, 3, 1, 5), "T: expected an integer of at least 2, found"),
        (data.sphere, (KEY, 3, 4, 0), "d: expected an integer of at least 1, found"),
        (data.Spheres, (0, 4, [5]), "n: expected an integer of at least 1, found"),
        (data.Spheres, (3, 1, [5]), "T: expected an integer of at least 2, found"),
        (data.Spheres, (3, 4, [5, 0]), "d: expected an integer of at least 1, found"),
        (data.Spheres, (3, 4, []), r"d: expected different dimensions, at least one, found \[\]"),
        (data.Spheres, (3, 4, [3, 3]), r"d: expected different dimensions, at least one, found \[3, 3\]"),
        (data.orthonormal, (KEY, 3, 6, 5), "T: expected at most d = 5 orthonormal tokens, found 6"),
        (data.mlp, (KEY, 3, 4, 5, 0), "width: expected an integer of at least 1, found 0"),
        (data.spread_scores, (KEY, 3, 4, 1, 0.5), "d: expected an integer of at least 2, .*found 1"),
        (data.spread_scores, (KEY, 3, 4, 5, 1.5), "spread: expected a number within 0..1, found 1.5"),
        (data.spread_scores, (KEY, 3, 1, 5, 0.5), "T: expected an integer of at least 2, found 1"),
    ],
)
def test_sizes_out_of_range_are_refused_by_name(law, sizes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        law(*sizes)
