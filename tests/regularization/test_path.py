"""Points of the regularization paths minimize the risk on their ball, and tend to the max-margin solutions."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, attention, losses, metrics, regularization, svm, tokens
from jaxattn.parallel import batch
from tests.instances import lane, problem, slow, stacked
from tests.svm.problems import NORMS

RADII = np.array([0.5, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
# One of them in the middle of the others, one the first: a path that comes from elsewhere.
OTHERS = np.array([10.0, 20.0, 30.0, 50.0, 70.0, 100.0, 300.0])
BALLS = [regularization.FROBENIUS, slow(regularization.NUCLEAR)]
COUNT = 4


def single() -> Problem:
    """The shared problem with one input that counts: the others have equal tokens, whatever they attend to."""
    one = problem()
    return Problem(X=one.X.at[1:].set(one.X[1:, :1]), Z=one.Z, Y=one.Y, v=one.v)


def pair() -> Problem:
    """The same with two kinds of tokens: the optimal one, and copies of the other."""
    one = single()
    return Problem(X=one.X.at[0, 2:].set(one.X[0, 1]), Z=one.Z, Y=one.Y, v=one.v)


@cache
def paths(ball: regularization.Ball) -> tuple[Problem, regularization.Path]:
    """Those of some problems, of one of them on other radii, and of the two special ones: one program."""
    problems = stacked([*(problem(seed) for seed in range(COUNT)), problem(0), single(), pair()])
    radii = np.stack([*[RADII] * COUNT, OTHERS, RADII, RADII])
    return problems, batch.over_seeds(one_path(ball), problems, radii)


@cache
def one_path(ball: regularization.Ball):
    return jax.jit(lambda one, radii: regularization.path(one, radii, ball))


@pytest.mark.slow
@pytest.mark.parametrize("ball", BALLS)
def test_every_point_is_solved_and_satisfies_the_first_order_conditions(ball):
    problems, found = paths(ball)
    norm, dual = NORMS[ball.name]
    assert found.solved[: COUNT + 1].all()
    assert found.residual[: COUNT + 1].max() <= 1e-6
    for seed in range(COUNT):
        for k, R in enumerate(RADII):
            weights = lane(lane(found.weights, seed), k)
            W = np.asarray(attention.matrix(weights))
            assert norm(W) == pytest.approx(R, rel=1e-6)
            if isinstance(weights, attention.Factored):
                K, Q = map(np.asarray, weights)
                np.testing.assert_allclose(K.T @ K, Q.T @ Q, atol=2e-3 * R)
            if R <= 10:  # Beyond, what differentiation forms is lost to rounding.
                G = np.asarray(jax.grad(losses.risk)(jnp.asarray(W), lane(problems, seed)))
                residual = 1 + np.sum(G * W) / (dual(G) * R)
                assert abs(residual - found.residual[seed, k]) < 1e-9


@pytest.mark.parametrize("ball", BALLS)
def test_no_random_point_of_the_ball_has_a_lower_risk(ball):
    problems, found = paths(ball)
    norm, _ = NORMS[ball.name]
    risk = jax.jit(jax.vmap(losses.risk, in_axes=(0, None)))
    rng = np.random.default_rng(0)
    for seed in range(COUNT):
        for k in range(3):
            W = np.asarray(attention.matrix(lane(lane(found.weights, seed), k)))
            far = rng.normal(size=(600, *W.shape))
            rank_one = rng.normal(size=(600, *W.shape[:1], 1)) * rng.normal(size=(600, 1, *W.shape[1:]))
            sizes = RADII[k] * 10.0 ** rng.uniform(-4, 0, (600, 1, 1))
            near = W + sizes * far / np.linalg.norm(far, axis=(1, 2), keepdims=True)
            points = np.concatenate([far, rank_one, near])
            points = RADII[k] * points / np.array([norm(one) for one in points])[:, None, None]
            lowest = float(jnp.min(risk(jnp.asarray(points), lane(problems, seed))))
            assert lowest >= found.risk[seed, k] * (1 - 1e-12)


@pytest.mark.parametrize("ball", BALLS)
def test_the_risk_falls_with_the_radius(ball):
    _, found = paths(ball)
    assert np.all(np.diff(found.risk[:COUNT, :4]) < 0)
    assert np.all(np.diff(found.excess[:COUNT]) < 0)


@pytest.mark.parametrize("ball", BALLS)
def test_a_point_does_not_depend_on_the_radii_that_lead_to_it(ball):
    _, found = paths(ball)
    W = np.asarray(attention.matrix(found.weights))
    shared = [(int(np.flatnonzero(RADII == R)[0]), k) for k, R in enumerate(OTHERS) if R in RADII]
    assert len(shared) == 4
    for k, other in shared:
        np.testing.assert_allclose(W[0, k], W[COUNT, other], atol=1e-4 * RADII[k])
        np.testing.assert_allclose(found.risk[0, k], found.risk[COUNT, other], rtol=1e-7)


@pytest.mark.parametrize("ball", BALLS)
def test_two_tokens_of_one_input_are_told_apart_along_their_difference(ball):
    problems, found = paths(ball)
    one = lane(problems, COUNT + 2)
    scores = tokens.scores(one)[0]
    A = np.outer(one.X[0, 0] - one.X[0, 1], one.Z[0]) * np.sign(scores[0] - scores[1])
    for k, R in enumerate(RADII):
        W = np.asarray(attention.matrix(lane(lane(found.weights, COUNT + 2), k)))
        np.testing.assert_allclose(W / R, A / np.linalg.norm(A), atol=1e-4)


@pytest.mark.slow
def test_of_one_input_both_balls_have_the_same_path():
    W, KQ = (
        np.asarray(attention.matrix(paths(ball)[1].weights))[COUNT + 1]
        for ball in (regularization.FROBENIUS, regularization.NUCLEAR)
    )
    np.testing.assert_allclose(W / RADII[:, None, None], KQ / RADII[:, None, None], atol=1e-4)


@pytest.mark.parametrize("ball", BALLS)
def test_the_path_tends_to_the_max_margin_solution_of_the_optimal_tokens_in_the_norm_of_its_ball(ball):
    problems, found = paths(ball)
    norm, _ = NORMS[ball.name]
    for seed in range(COUNT):
        one = lane(problems, seed)
        solution = svm.solve(svm.token_constraints(one, tokens.optimal(one)), norm=ball.name)
        limit = np.asarray(solution.W) / norm(np.asarray(solution.W))
        W = np.asarray(attention.matrix(lane(found.weights, seed)))
        distance = np.linalg.norm(W / RADII[:, None, None] - limit, axis=(1, 2))
        # Like 1 / R.
        assert distance[-1] < 0.2 * distance[-3] < 0.1
        assert metrics.correlation(jnp.asarray(W[-1]), solution.W) > 0.999


@pytest.mark.slow
def test_another_head_and_loss_have_their_own_path():
    def bent(x, v):
        return v @ x - 0.3 * (x @ x)

    one = problem(1)
    found = regularization.path(one, RADII, loss=losses.exponential, head=bent)
    assert np.asarray(found.solved)[:3].all()
    for k in range(3):
        G = np.asarray(jax.grad(losses.risk)(found.weights[k], one, loss=losses.exponential, head=bent))
        assert 1 + np.sum(G * found.weights[k]) / (np.linalg.norm(G) * RADII[k]) < 1e-6


@pytest.mark.parametrize(
    ("message", "radii"),
    [
        *(("expected a list of numbers", radii) for radii in ([], [[1.0]])),
        *(("positive and increasing", [first, 1.0]) for first in (0.0, -1.0, 2.0, 1.0, np.nan)),
        *(("positive and increasing", radii) for radii in ([-1.0], [1.0, np.nan], [1.0, np.inf])),
    ],
)
def test_radii_that_are_none_are_named(message, radii):
    with pytest.raises(ValueError, match=f"radii: .*{message}"):
        regularization.path(problem(), radii)


def test_the_norms_of_the_balls_are_those_of_their_names():
    rng = np.random.default_rng(1)
    for ball in (regularization.FROBENIUS, regularization.NUCLEAR):
        (norm, dual), dual_norm = NORMS[ball.name], jax.jit(ball.dual_norm)
        for shape in ((5, 3), (3, 5), (4, 4)):
            G, W = rng.normal(size=shape), rng.normal(size=shape)
            np.testing.assert_allclose(dual_norm(G), dual(G), rtol=1e-9)
            assert np.sum(G * W) <= dual(G) * norm(W)
        equal = np.diag([2.0, 2.0, 1.0])
        np.testing.assert_allclose(dual_norm(equal), dual(equal), rtol=1e-9)
