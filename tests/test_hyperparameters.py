"""Numbers that are passed as arrays, and what optimizers may need."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import descent, heads, models, norms
from tests import instances
from tests.instances import d

KINDS = {"jax": jnp.asarray, "numpy": np.asarray, "a scalar of numpy": np.float64}
MADE = {
    "steepest": lambda x: descent.steepest("max", x),
    "a schedule": lambda x: descent.steepest("max", descent.falling_step(x, power=x)),
    "mirror": lambda x: descent.mirror(1 + x, step=x),
    "lp_gd": lambda x: descent.lp_gd(1 + x, step=x),
    "momentum": lambda x: descent.momentum(descent.steepest("max", 0.5), decay=x),
    "dropout": descent.dropout,
    "gumbel": descent.gumbel,
    "entropy": descent.entropy,
    "entrywise": lambda x: norms.entrywise(1 + x),
    "schatten": lambda x: norms.schatten(1 + x),
    "a temperature": models.temperature,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", MADE)
def test_an_array_of_one_number_is_that_number(name, kind):
    assert MADE[name](kind(0.25)) is MADE[name](0.25)


def test_a_head_of_a_number_of_numpy_is_that_of_the_number():
    one, other = heads.Quadratic(np.float64(0.25)), heads.Quadratic(0.25)
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("kind", [descent.Exact, optax.GradientTransformation])
@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        (optax.lbfgs(), r"\['value', 'grad', 'value_fn'\]"),
        (optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()), r"\['value'\]"),
    ],
)
def test_an_optimizer_that_needs_the_loss_is_refused_by_what_it_needs(rule, needed, kind):
    for train, start, problem in (
        (descent.train, jnp.eye(d), instances.problem()),
        (descent.train_batch, jnp.eye(d)[None], instances.problems(1)),
    ):
        with pytest.raises(
            ValueError, match=f"^optimizer: expected one that needs only.*found one that needs {needed}"
        ):
            train(start, problem, optimizer=kind(*rule), steps=2)


def test_steps_that_are_collected_are_taken_together():
    rule = descent.scale_free(optax.MultiSteps(optax.sign_sgd(0.1), 2))
    run = descent.train(jnp.eye(d), instances.problem(), optimizer=rule, steps=3, snapshots=(1, 2, 3))
    np.testing.assert_array_equal(run.snapshots[0], jnp.eye(d))
    assert np.any(run.snapshots[1] != run.snapshots[0])
    np.testing.assert_array_equal(run.snapshots[2], run.snapshots[1])


def test_a_trained_vector_moves_along_its_gradient_in_norms_of_columns():
    one = instances.problem()
    start = models.Joint(jnp.zeros((d, d)), one.v)
    given = {"model": models.with_values(), "optimizer": descent.steepest("2,1 of columns", 0.1), "steps": 1}
    moved = descent.train(start, one, **given).weights.readout - one.v
    slope = jax.jit(partial(descent.direction, model=models.with_values()))(start, one).gradient.readout
    np.testing.assert_allclose(moved, -0.1 * slope / jnp.linalg.norm(slope), rtol=1e-9)
    # Beside a matrix, the steps of these norms are as long.
    for norm in ("frobenius", "nuclear", "spectral"):
        rule = descent.steepest(norm, 0.1)
        step, _ = jax.jit(rule.update)(slope, rule.init(slope), one.v)
        np.testing.assert_allclose(step, moved, rtol=1e-9)


def test_parameters_of_more_axes_are_refused():
    def logits(W, problem):
        return jnp.einsum("ntd,hde,ne->hnt", problem.X, W, problem.Z)

    with pytest.raises(ValueError, match=r"steepest: expected matrices, vectors and numbers, found .*\(2, 5, 5\)"):
        descent.train(
            jnp.zeros((2, d, d)), instances.problem(), model=logits, optimizer=descent.steepest("max", 0.1), steps=1
        )
