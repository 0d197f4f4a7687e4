"""Runs and the values that make them can be sent to other processes."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, heads, losses, models, norms
from tests import instances
from tests.instances import d, slow

OPTIMIZERS = {
    "gd": descent.gd(0.1),
    "normalized_gd": descent.normalized_gd(0.1),
    "jointly_normalized_gd": descent.jointly_normalized_gd(0.1),
    "long_first_gd": descent.long_first_gd(0.1, 1.0),
    "falling": descent.falling(descent.gd(0.1)),
    "mirror": descent.mirror(3.0, 0.1),
    "lp_gd": descent.lp_gd(3.0, step=0.1),
    "steepest": descent.steepest("spectral", 0.1),
    "steepest, falling": descent.steepest("max", step=descent.falling_step(0.1)),
    "momentum": descent.momentum(descent.steepest("max", 0.1), decay=0.5),
}
# One of each kind; the copies of all that have inner functions are compared below.
SHOWN = ("normalized_gd", "falling", "mirror", "steepest, falling", "momentum")
OTHERS = {
    **{f"losses.{name}": getattr(losses, name) for name in losses.__all__ if name != "Loss"},
    **{f"heads.{name}": getattr(heads, name) for name in ("linear", "mlp")},
    "a head": heads.Quadratic(0.5),
    "a model": models.summed(2, model=models.rotary()),
    "noise": descent.dropout(0.1),
    "a penalty": descent.entropy(0.1),
    "a norm": norms.squared(norms.nuclear),
    "max": norms.named("max"),
    "l_1.5": norms.entrywise(1.5),
    "squared l_3": norms.squared(norms.entrywise(3.0)),
    "schatten_1.5": norms.schatten(1.5),
    "rows": norms.rows(1.0),
    "columns": norms.columns(float("inf")),
    "of bounded rank": norms.nuclear_of_rank(2),
}


def copied(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("name", [name if name in SHOWN else slow(name) for name in OPTIMIZERS])
def test_a_run_is_copied_with_its_optimizer(name):
    run = descent.train(jnp.eye(d), instances.problem(), optimizer=OPTIMIZERS[name], steps=3)
    other = copied(run)
    for leaf, same in zip(jax.tree.leaves(run), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(leaf, same)
    optimizer = other.rule.optimizer
    assert type(optimizer) is type(OPTIMIZERS[name])
    again = descent.train(jnp.eye(d), instances.problem(), optimizer=optimizer, steps=3)
    np.testing.assert_array_equal(again.weights, run.weights)


@pytest.mark.parametrize("name", ["mirror", "lp_gd", "steepest", "steepest, falling", "momentum"])
def test_an_optimizer_with_inner_functions_is_the_one_that_its_call_makes(name):
    assert copied(OPTIMIZERS[name]) is OPTIMIZERS[name]


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_are_equal_to_their_copies(name):
    assert copied(OTHERS[name]) == OTHERS[name]
    # Programs are kept by these.
    assert hash(copied(OTHERS[name])) == hash(OTHERS[name])
