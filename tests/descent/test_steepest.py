"""Steepest descent: a step of length one that the gradient falls fastest along, in every norm."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, bias, descent, norms, svm
from tests import instances

NORMS = ("frobenius", "nuclear", "spectral", "max", "l1", "l_1.5", "l_3", "schatten_1.5", "schatten_4")
NORMS += ("2,inf", "2,1", "2,inf of columns", "2,1 of columns", "gamma2")


def moved(norm, G: Any, step: Any = 1.0) -> Any:
    optimizer: Any = descent.steepest(norm, step)
    return -optimizer.update(G, optimizer.init(G), G)[0]


@pytest.mark.parametrize("rank", [1, 3, 4])
@pytest.mark.parametrize("norm", NORMS)
def test_a_step_has_length_one_and_reaches_the_dual_norm(norm, rank):
    left, right = jax.random.normal(jax.random.key(rank), (2, 5, rank))
    G = left @ right.T
    D, value = moved(norm, G), norms.named(norm)
    np.testing.assert_allclose(value.value(D), 1, rtol=1e-10)
    np.testing.assert_allclose(jnp.sum(G * D), value.dual(G), rtol=1e-10)


@pytest.mark.parametrize("norm", NORMS)
def test_the_scale_of_the_gradient_shows_in_no_bit(norm):
    G = jax.random.normal(jax.random.key(0), (5, 4))
    np.testing.assert_array_equal(moved(norm, G * 2.0**-600), moved(norm, G))
    np.testing.assert_array_equal(moved(norm, jnp.zeros((5, 4))), 0)


def test_known_rules_are_steepest_descent():
    G = jax.random.normal(jax.random.key(0), (5, 4))
    np.testing.assert_allclose(moved("frobenius", G), G / jnp.linalg.norm(G), rtol=1e-14)
    np.testing.assert_array_equal(moved("max", G), jnp.sign(G))
    U, _, Vt = jnp.linalg.svd(G, full_matrices=False)
    np.testing.assert_allclose(moved("spectral", G), U @ Vt, atol=1e-14)
    np.testing.assert_allclose(moved("nuclear", G), np.outer(U[:, 0], Vt[0]), atol=1e-12)


def test_a_gradient_of_low_rank_moves_along_its_own_directions_alone():
    G = jnp.zeros((5, 5)).at[0, 0].set(3.0).at[1, 1].set(1e-3)
    np.testing.assert_allclose(moved("spectral", G), jnp.zeros((5, 5)).at[0, 0].set(1.0).at[1, 1].set(1.0), atol=1e-14)


def test_no_two_singular_value_decompositions_are_independent():
    """On a CPU of two threads, batched LAPACK calls that may run together can wait for each other for ever."""
    optimizer: Any = descent.steepest("spectral", 1.0)
    factors = attention.Factored(*jax.random.normal(jax.random.key(0), (2, 5, 4)))
    moves = optimizer.update(factors, optimizer.init(factors), factors)[0]
    for move, G in zip(moves, factors, strict=True):
        np.testing.assert_array_equal(-move, moved("spectral", G))

    jaxpr = jax.make_jaxpr(lambda G: optimizer.update(G, optimizer.init(G), G)[0])(factors).jaxpr
    reached: set[Any] = set()
    waiting = 0
    for equation in jaxpr.eqns:
        calls = "svd" in str(equation)
        if reached.isdisjoint(map(id, equation.invars)):
            assert not (calls and waiting), "a second decomposition that knows nothing of the first"
        if calls:
            waiting += 1
            reached = set(map(id, equation.outvars))
        elif not reached.isdisjoint(map(id, equation.invars)):
            reached |= set(map(id, equation.outvars))
    assert waiting == 2


def test_a_schedule_counts_the_steps():
    problem, start = instances.problem(), instances.free()
    given = {"steps": 3, "snapshots": (1, 2, 3)}
    run: Any = descent.train(start, problem, optimizer=descent.steepest("max", lambda k: 0.1 / (1 + k)), **given)
    lengths = jnp.abs(jnp.diff(jnp.concatenate([start[None], run.snapshots]), axis=0)).max(axis=(1, 2))
    np.testing.assert_allclose(lengths, [0.1, 0.05, 0.1 / 3], rtol=1e-10)


def test_sign_descent_is_that_of_optax():
    problem, start = instances.problem(), instances.free()
    sign = descent.ScaleFree(*optax.chain(optax.scale_by_sign(), optax.scale(-0.01)))
    mine, theirs = (
        descent.train(start, problem, optimizer=rule, steps=50).weights
        for rule in (descent.steepest("max", 0.01), sign)
    )
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "step"), [("frobenius", 0.1), ("spectral", 0.03), ("max", 0.01), ("l1", 0.1)])
def test_a_free_matrix_obeys_the_norm_it_descends_in(norm, step):
    problems = instances.problems(10)
    rule = descent.steepest(norm, step)
    start = jnp.zeros((10, 5, 5))
    run = descent.train_batch(start, problems, optimizer=rule, steps=10_000, snapshots=(1000, 3000, 10_000))
    ranking = bias.rank(run, problems)
    assert ranking.verdict.norms == (norm,)


@pytest.mark.parametrize(
    ("norm", "step", "message"),
    [
        ("polar", 0.1, r"^norm: expected one of .* 'polar'"),
        (svm.nuclear_of_rank(2), 0.1, r"^norm: expected a norm without a bound on the rank, found 'nuclear of rank 2'"),
        ("max", 0.0, r"^step: expected a positive number or a schedule, found 0.0"),
        ("max", float("nan"), r"^step: expected a positive number or a schedule, found nan"),
    ],
)
def test_bad_input_is_named(norm, step, message):
    with pytest.raises(ValueError, match=message):
        descent.steepest(norm, step)
