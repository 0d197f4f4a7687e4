"""Points of the path of few columns satisfy first-order conditions; with enough columns they are the wide path's."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import attention, losses, regularization, tokens
from jaxattn.parallel import batch
from tests.instances import d, problem, stacked

RADII = np.array([1.0, 10.0, 100.0])
COUNT, STARTS = 3, 4


@cache
def narrow(m: int) -> regularization.NarrowPath:
    follow = partial(regularization.narrow_path, radii=RADII, m=m, starts=STARTS)
    return batch.over_seeds(jax.jit(lambda one: follow(one)), stacked([problem(seed) for seed in range(COUNT)]))


@pytest.mark.slow
def test_every_point_satisfies_the_first_order_conditions_on_its_ball():
    found = narrow(1)
    assert found.solved.all()
    assert found.minimum.all()
    assert found.residual.max() <= 1e-6
    risk = jax.grad(lambda K, Q, one: losses.risk(attention.Factored(K, Q), one), argnums=(0, 1))
    for seed in range(COUNT):
        for k, R in enumerate(RADII):
            K, Q = (leaf[seed, k] for leaf in found.weights)
            np.testing.assert_allclose(np.sum(K**2) + np.sum(Q**2), 2 * R, rtol=1e-9)
            np.testing.assert_allclose(np.sum(K**2), np.sum(Q**2), rtol=1e-5)
            if R <= 10:  # Beyond, what differentiation forms is lost to rounding.
                x = np.concatenate([K, Q]).ravel()
                g = np.concatenate(risk(jnp.asarray(K), jnp.asarray(Q), problem(seed))).ravel()
                cosine = -g @ x / np.linalg.norm(g) / np.linalg.norm(x)
                assert cosine > 1 - 1e-9
    assert np.all(np.diff(found.excess) < 0)
    assert np.all((found.agreeing >= 0) & (found.agreeing <= 1))


@pytest.mark.slow
def test_no_random_point_of_rank_one_has_a_lower_risk():
    found, rng = narrow(1), np.random.default_rng(0)
    risk = jax.jit(jax.vmap(losses.risk, in_axes=(0, None)))
    for seed in range(COUNT):
        for k in range(2):
            K, Q = (np.asarray(leaf[seed, k]) for leaf in found.weights)
            far = rng.normal(size=(2, 500, d, 1))
            shares = 10.0 ** rng.uniform(-4, 0, (500, 1, 1))
            near = [leaf + shares * np.linalg.norm(leaf) * rng.normal(size=(500, d, 1)) for leaf in (K, Q)]
            for A, B in (far, near):
                length = np.linalg.norm(A, axis=(1, 2)) * np.linalg.norm(B, axis=(1, 2)) / RADII[k]
                W = A @ np.swapaxes(B, 1, 2) / length[:, None, None]
                assert float(jnp.min(risk(jnp.asarray(W), problem(seed)))) >= found.risk[seed, k] * (1 - 1e-12)


@pytest.mark.slow
def test_with_as_many_columns_as_the_solution_has_rank_the_path_is_the_wide_one():
    follow = jax.jit(lambda one: regularization.path(one, RADII, regularization.NUCLEAR))
    wide = batch.over_seeds(follow, stacked([problem(seed) for seed in range(COUNT)]))
    found = narrow(d)
    assert found.solved.all()
    # Radii a decade apart are far for the wide path, which has no other starts: there it may lack a point.
    at = wide.solved
    assert at.sum() >= at.size - 1
    np.testing.assert_allclose(found.excess[at], wide.excess[at], rtol=1e-5)
    W, own = (np.asarray(attention.matrix(weights)) / RADII[:, None, None] for weights in (wide.weights, found.weights))
    np.testing.assert_allclose(own[at], W[at], atol=1e-5)


@pytest.mark.slow
def test_more_columns_do_not_raise_the_risk():
    assert np.all(narrow(2).excess <= narrow(1).excess + 1e-6)


def test_the_residual_is_the_sine_of_an_angle():
    ball, rng = regularization.Narrow(m=1), np.random.default_rng(5)
    G, x = jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(5, 1)))
    g = np.asarray(ball.gradient(x, G)).ravel()
    cosine = -g @ np.asarray(x).ravel() / np.linalg.norm(g) / np.linalg.norm(x)
    for sign in (1, -1):
        found = float(ball.residual(x, G, sign * G, G, jnp.ones(())))
        np.testing.assert_allclose(found, np.sqrt(1 - cosine**2) if sign * cosine > 0 else 1.0, rtol=1e-12)


@pytest.mark.slow
def test_the_excess_is_that_over_the_risk_of_the_optimal_tokens():
    one = problem()
    optimal = tokens.optimal(one)
    K, Q = (leaf[0, 1] for leaf in narrow(1).weights)
    risk = float(losses.risk(attention.Factored(jnp.asarray(K), jnp.asarray(Q)), one))
    chosen = one.Y * (one.X[np.arange(one.n), optimal] @ one.v)
    least = float(jnp.mean(jax.vmap(losses.logistic)(chosen)))
    assert risk > least
    np.testing.assert_allclose(np.exp(narrow(1).excess[0, 1]), risk - least, rtol=0.5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"m": 0}, "m: expected at least 1, found 0"),
        ({"m": 1, "starts": 1}, "starts: expected at least 2, found 1"),
        ({"m": 1, "most": 0}, "most: expected at least 1, found 0"),
        ({"m": 1, "tolerance": 0.0}, "tolerance: expected a positive finite number, found 0.0"),
        ({"m": 1, "radii": [2.0, 1.0]}, "radii: expected positive and increasing"),
    ],
)
def test_arguments_out_of_range_are_named(more, message):
    with pytest.raises(ValueError, match=message):
        regularization.narrow_path(problem(), **({"radii": RADII} | more))
