"""The norm of sign matrices and its dual: closed forms, bounds from both sides, the linear program, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.optimize import linprog

from jaxattn import signs
from jaxattn.norms import named

RNG = np.random.default_rng(0)
GAMMA2, VALUE, DUAL, MAXIMIZER = map(jax.jit, (named("gamma2").value, signs.value, signs.dual, signs.maximizer))


def all_signs(d):
    return 1 - 2 * ((np.arange(2**d)[:, None] >> np.arange(d)) & 1)


def sign_matrices(d, e):
    """All of them, (k, d, e)."""
    return np.einsum("ad,be->abde", all_signs(d), all_signs(e)).reshape(-1, d, e)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4), (4, 2)])
def test_both_are_what_all_sign_matrices_give(shape):
    ball, W = sign_matrices(*shape), RNG.normal(size=shape)
    np.testing.assert_allclose(DUAL(W), np.einsum("kde,de->k", ball, W).max(), rtol=1e-13)
    program = linprog(np.ones(len(ball)), A_eq=ball.reshape(len(ball), -1).T, b_eq=W.ravel(), method="highs")
    np.testing.assert_allclose(VALUE(W), program.fun, rtol=1e-9)


@pytest.mark.parametrize(
    ("W", "value", "dual"),
    [
        (np.zeros((2, 2)), 0.0, 0.0),
        (np.eye(4), 1.0, 4.0),
        (np.diag([3.0, -1.0, 2.0]), 3.0, 6.0),
        (np.outer([1.0, -2.0, 0.5], [3.0, 1.0, -1.0, 2.0]), 6.0, 24.5),
        # x^T [[1, 1], [1, -1]] y is at most 2 over signs: the CHSH bound. It is half the sum of four of them.
        (np.array([[1, 1], [1, -1.0]]), 2.0, 2.0),
    ],
)
def test_closed_forms(W, value, dual):
    np.testing.assert_allclose(VALUE(W), value, rtol=1e-9)
    np.testing.assert_allclose(DUAL(W), dual, rtol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_no_inner_product_exceeds_the_norm_times_the_dual_norm(seed):
    rng = np.random.default_rng(seed)
    W, G = rng.normal(size=(2, 5, 4)) * rng.exponential(size=(2, 1, 1))
    assert abs(np.sum(W * G)) <= VALUE(W) * DUAL(G)
    D = MAXIMIZER(G)
    np.testing.assert_allclose(np.sum(D * G), DUAL(G), rtol=1e-12)
    np.testing.assert_allclose(VALUE(D), 1, rtol=1e-10)
    # Sign matrices are inner products of unit vectors, and no entry of one exceeds 1.
    gamma2, largest = GAMMA2(W), np.abs(W).max()
    assert largest <= gamma2 * (1 + 1e-11)
    assert gamma2 <= VALUE(W) * (1 + 1e-11)


def test_a_decomposition_is_never_less_than_the_norm():
    """A convex combination of sign matrices has at most norm 1, and a multiple at a vertex just that."""
    rng = np.random.default_rng(1)
    ball = sign_matrices(4, 4)
    for _ in range(5):
        weights = rng.dirichlet(np.ones(3))
        W = np.einsum("k,kde->de", weights, ball[rng.choice(len(ball), size=3)])
        value = VALUE(W)
        assert np.abs(W).max() <= value <= 1 + 1e-10
    np.testing.assert_allclose(VALUE(2.5 * ball[7]), 2.5, rtol=1e-10)


def test_scale_transpose_and_zeros_change_nothing_under_jit_and_vmap():
    W = RNG.normal(size=(3, 4))
    value, dual = float(signs.value(jnp.asarray(W))), float(signs.dual(jnp.asarray(W)))
    for other in (W.T, np.pad(W, 1)):
        np.testing.assert_allclose(VALUE(other), value, rtol=1e-10)
        np.testing.assert_allclose(DUAL(other), dual, rtol=1e-12)
    for c in (1e-200, 1e200):
        np.testing.assert_allclose(signs.value(jnp.asarray(c * W)), c * value, rtol=1e-10)
    lanes = np.stack([W, 2 * W, 0 * W])
    np.testing.assert_allclose(jax.jit(jax.vmap(signs.value))(lanes), [value, 2 * value, 0], rtol=1e-10)
    np.testing.assert_allclose(jax.jit(jax.vmap(signs.dual))(lanes), [dual, 2 * dual, 0], rtol=1e-12)


def test_single_precision_is_rounded_upwards():
    W = jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32)
    for function in (VALUE, DUAL):
        single, double = function(W), function(W.astype(float))
        assert single.dtype == jnp.float32
        assert float(double) * (1 - 1e-11) <= float(single) <= float(double) * (1 + 3e-6)


def test_what_is_not_finite_has_no_norm():
    assert jnp.isnan(signs.value(jnp.full((2, 2), jnp.nan)))
    assert jnp.isnan(signs.value(jnp.full((2, 2), jnp.inf)))


@pytest.mark.parametrize("function", [signs.value, signs.dual, signs.maximizer])
def test_more_than_sixteen_rows_and_columns_are_refused(function):
    message = r"^norm 'sign': expected matrices with a side of at most 16, .* found \(17, 18\)"
    with pytest.raises(ValueError, match=message):
        function(jnp.ones((17, 18)))
    if function is not signs.value:
        assert jnp.isfinite(function(jnp.ones((17, 3)))).all()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_program_that_fails_numerically_is_tried_in_other_ways(failing, monkeypatch):
    W, asked = np.random.default_rng(3).normal(size=(3, 4)), []
    expected = signs.decomposed(W)

    def fails(cost, options, **rows):
        asked.append(options)
        if options in signs._WAYS[:failing]:
            return optimize.OptimizeResult(x=None, status=4)
        return linprog(cost, options=options, **rows)

    monkeypatch.setattr(optimize, "linprog", fails)
    np.testing.assert_allclose(signs.decomposed(W), expected, rtol=1e-8)
    assert asked[: failing + 1] == list(signs._WAYS[: failing + 1])


def test_multipliers_with_an_error_add_no_matrix_twice(monkeypatch):
    W, asked = np.random.default_rng(3).normal(size=(3, 4)), []
    expected = signs.decomposed(W)

    def inaccurate(cost, **rows):
        asked.append(rows)
        found = linprog(cost, **rows)
        found.eqlin.marginals += 1e-10 * np.resize([1.0, -1.0], found.eqlin.marginals.shape)
        return found

    monkeypatch.setattr(optimize, "linprog", inaccurate)
    np.testing.assert_allclose(signs.decomposed(W), expected, rtol=1e-12)
    assert 0 < len(asked) < 20


def test_a_program_without_a_solution_is_tried_once(monkeypatch):
    asked = []

    def counted(*given, **rows):
        asked.append(1)
        return linprog(*given, **rows)

    monkeypatch.setattr(optimize, "linprog", counted)
    assert signs.minimized(np.ones(1), A_eq=np.ones((1, 1)), b_eq=np.array([-1.0])).x is None
    assert asked == [1]


def test_the_value_is_that_of_doubles_where_they_are_switched_on_for_the_caller_alone():
    """JAX calls back in another thread, for which they are not."""
    W = np.random.default_rng(3).normal(size=(3, 4))
    expected = float(signs.decomposed(W))
    with jax.enable_x64(False):
        with jax.enable_x64(True):
            found = jax.jit(jax.vmap(signs.value))(np.stack([W, W + 1e-12]))
        assert np.asarray(found).dtype == np.float64
        assert float(found[0]) == expected
        assert np.asarray(jax.jit(signs.value)(W.astype(np.float32))).dtype == np.float32
