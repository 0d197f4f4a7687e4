"""Mirror descent in l_p: normalized descent for p = 2, an exact mirror map at zero, and the max-margin of its norm."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, descent
from jaxattn.descent.carried import carried
from tests import instances

STEPS = 40


@pytest.mark.parametrize("kind", ["free", "factored"])
def test_with_p_of_2_it_is_normalized_descent(kind):
    problem = instances.problem()
    start = instances.free() if kind == "free" else instances.factored(m=2)
    mirrored, normalized = (
        descent.train(start, problem, optimizer=rule, steps=STEPS).weights
        for rule in (descent.mirror(2.0, 0.1), descent.normalized_gd(0.1, floor=0.0, penalty=0.0))
    )
    instances.assert_close(mirrored, normalized, rtol=1e-12)


@pytest.mark.parametrize("p", [1.3, 1.5, 3.0, 10.0])
def test_the_slope_of_the_potential_moves_along_the_gradient(p):
    start, G = instances.free(), jax.random.normal(jax.random.key(1), (5, 5))
    optimizer: Any = descent.mirror(p, 0.2)
    moves, _ = optimizer.update(G, optimizer.init(start), start)
    slope = jax.grad(lambda W: jnp.sum(jnp.abs(W) ** p) / p)
    np.testing.assert_allclose(slope(start + moves), slope(start) - 0.2 * G / jnp.linalg.norm(G), rtol=1e-9)


@pytest.mark.parametrize("p", [1.05, 1.5, 3.0, 10.0])
def test_from_zero_every_number_is_finite_and_the_scale_shows_in_no_bit(p):
    zero, G = jnp.zeros((5, 5)), jax.random.normal(jax.random.key(1), (5, 5))
    optimizer: Any = descent.mirror(p, 0.1)
    moves, state = optimizer.update(G, optimizer.init(zero), zero)
    again, _ = optimizer.update(G * 2.0**-600, optimizer.init(zero), zero)
    np.testing.assert_array_equal(again, moves)
    assert np.isfinite(moves).all()
    assert (np.asarray(moves) != 0).any()
    still, _ = optimizer.update(zero, state, moves)
    np.testing.assert_allclose(still, 0, atol=1e-15 * np.abs(moves).max())
    # Accepted by what tries that out, too, and without a scale to carry.
    assert carried(optimizer, zero)[1] is optimizer.update


def test_no_rounding_error_of_the_weights_is_kept():
    """After many steps W still is where the slope of the potential says, not where its moves add up to."""
    optimizer: Any = descent.mirror(1.5, 0.1)
    G = jnp.ones((3, 3)) / 3
    W, state = jnp.zeros((3, 3)), optimizer.init(jnp.zeros((3, 3)))
    for _ in range(50):
        moves, state = optimizer.update(G, state, W)
        W = W + moves
    np.testing.assert_allclose(W, -np.full((3, 3), (50 * 0.1 / 3) ** 2), rtol=1e-13)


def test_a_schedule_counts_the_steps():
    problem, start = instances.problem(), jnp.zeros((5, 5))
    rule = descent.mirror(2.0, descent.falling_step(0.1, power=1.0))
    run: Any = descent.train(start, problem, optimizer=rule, steps=3, snapshots=(1, 2, 3))
    lengths = jnp.linalg.norm(jnp.diff(jnp.concatenate([start[None], run.snapshots]), axis=0), axis=(1, 2))
    np.testing.assert_allclose(lengths, [0.1, 0.05, 0.1 / 3], rtol=1e-10)


def test_a_lane_is_a_lone_run():
    problems, rule = instances.problems(3), descent.mirror(1.5, 0.1)
    runs = descent.train_batch(jnp.zeros((3, 5, 5)), problems, optimizer=rule, steps=STEPS)
    lone = descent.train(jnp.zeros((5, 5)), instances.lane(problems, 1), optimizer=rule, steps=STEPS)
    instances.assert_close(jax.tree.map(jnp.asarray, instances.lane(runs, 1)), lone, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "step"), [(3.0, 10.0), (1.5, 0.1)])
def test_it_obeys_the_norm_of_its_potential(p, step):
    problems, norm = instances.problems(10), f"l_{p:g}"
    given = {"optimizer": descent.mirror(p, step), "steps": 10_000, "snapshots": (1000, 3000, 10_000)}
    ranking = bias.rank(
        descent.train_batch(jnp.zeros((10, 5, 5)), problems, **given), problems, (norm, "frobenius", "max", "l1")
    )
    assert ranking.verdict.norms == (norm,)
    # Above the others, and nearer than normalized descent comes.
    given["optimizer"] = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    other = bias.rank(descent.train_batch(jnp.zeros((10, 5, 5)), problems, **given), problems, (norm,))
    assert ranking.ratio.low[0, -1] > max(ranking.ratio.high[1:, -1].max(), other.ratio.high[0, -1])


@pytest.mark.parametrize(
    ("p", "step", "message"),
    [
        (1.0, 0.1, r"^p: expected a number above 1, found 1.0"),
        (float("inf"), 0.1, r"^p: expected a number above 1, found inf"),
        (float("nan"), 0.1, r"^p: expected a number above 1, found nan"),
        (3.0, 0.0, r"^step: expected a positive number or a schedule, found 0.0"),
    ],
)
def test_bad_input_is_named(p, step, message):
    with pytest.raises(ValueError, match=message):
        descent.mirror(p, step)
