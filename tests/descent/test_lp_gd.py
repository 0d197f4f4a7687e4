"""Mirror descent in l_p by the gradient itself: gradient descent for p = 2, and the mirror map for every p."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent
from jaxattn.descent.lp_gd import lp_gd
from tests import instances

STEPS = 40


@pytest.mark.parametrize("kind", ["free", "factored"])
def test_with_p_of_2_it_is_gradient_descent(kind):
    problem = instances.problem()
    start = instances.free() if kind == "free" else instances.factored(m=2)
    mirrored, plain = (
        descent.train(start, problem, optimizer=rule, steps=STEPS).weights
        for rule in (lp_gd(2.0, 0.5), descent.gd(0.5))
    )
    instances.assert_close(mirrored, plain, rtol=1e-9)


@pytest.mark.parametrize("p", [1.3, 1.75, 3.0, 10.0])
def test_the_slope_of_the_potential_moves_by_the_gradient(p):
    start, G = instances.free(), jax.random.normal(jax.random.key(1), (5, 5))
    optimizer: Any = lp_gd(p, 0.2)
    moves, _ = optimizer.update(G, optimizer.init(start), start)
    slope = jax.grad(lambda W: jnp.sum(jnp.abs(W) ** p) / p)
    np.testing.assert_allclose(slope(start + moves), slope(start) - 0.2 * G, rtol=1e-9)


@pytest.mark.parametrize("p", [1.1, 3.0])
def test_from_zero_every_number_is_finite_and_a_gradient_of_zero_moves_nothing(p):
    zero, G = jnp.zeros((5, 5)), jax.random.normal(jax.random.key(1), (5, 5))
    optimizer: Any = lp_gd(p, 0.1)
    moves, state = optimizer.update(G, optimizer.init(zero), zero)
    assert np.isfinite(moves).all()
    assert (np.asarray(moves) != 0).any()
    still, _ = optimizer.update(zero, state, moves)
    np.testing.assert_allclose(still, 0, atol=1e-15 * np.abs(moves).max())


def test_a_lane_is_a_lone_run():
    problems, rule = instances.problems(3), lp_gd(3.0, 0.5)
    runs = descent.train_batch(jnp.zeros((3, 5, 5)), problems, optimizer=rule, steps=STEPS)
    lone = descent.train(jnp.zeros((5, 5)), instances.lane(problems, 1), optimizer=rule, steps=STEPS)
    instances.assert_close(jax.tree.map(jnp.asarray, instances.lane(runs, 1)), lone, rtol=1e-10)


@pytest.mark.parametrize(
    ("p", "step", "message"),
    [
        (1.0, 0.1, r"^p: expected a number above 1, found 1.0"),
        (float("inf"), 0.1, r"^p: expected a number above 1, found inf"),
        (True, 0.1, r"^p: expected a number above 1, found True"),
        (3.0, 0.0, r"^step: expected a positive finite number, found 0.0"),
        (3.0, float("nan"), r"^step: expected a positive finite number, found nan"),
    ],
)
def test_bad_input_is_named(p, step, message):
    with pytest.raises(ValueError, match=message):
        lp_gd(p, step)
