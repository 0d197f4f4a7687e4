"""What a run says of itself: the rule it was trained by, equal where runs are trained alike, not among its arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import descent, losses, models
from tests import instances

START = jnp.zeros((instances.d, instances.d))
MANY = jnp.zeros((2, instances.d, instances.d))


def rule_of(**given) -> descent.Rule:
    rule = descent.train(START, instances.problem(), steps=2, **given).rule
    assert rule is not None
    return rule


def test_a_run_names_what_it_was_trained_by():
    optimizer, model = optax.adam(0.1), models.rotary()
    rule = rule_of(optimizer=optimizer, loss=losses.exponential, model=model, noise=descent.full_batch)
    assert rule.optimizer is optimizer
    assert (rule.steps, rule.record_every, rule.loss, rule.model) == (2, 1, losses.exponential, model)
    batch = descent.train_batch(MANY, instances.problems(2), steps=2, optimizer=optimizer, model=model)
    assert batch.rule is not None
    assert batch.rule.optimizer is optimizer
    assert batch.rule.model == model


def test_rules_are_equal_where_their_parts_are():
    alike = [rule_of(optimizer=descent.normalized_gd(step)) for step in (0.1, np.float64(0.1))]
    assert len({rule_of(), *alike}) == 1
    gd = descent.gd(0.1)
    others = [rule_of(optimizer=one) for one in (gd, descent.Exact(*gd), descent.gd(0.2))]
    others += [rule_of(loss=losses.exponential), rule_of(model=models.temperature(2.0))]
    assert len({*others, rule_of()}) == 6


def test_runs_by_one_rule_are_stacked_and_others_without_it():
    first, again, other = (
        descent.train(START, instances.problem(), steps=2, optimizer=descent.gd(step)) for step in (0.1, 0.1, 0.2)
    )
    stacked = instances.stacked([first, again])
    assert stacked.rule == first.rule
    assert stacked.weights.shape == (2, *START.shape)
    with pytest.raises(ValueError, match="Rule"):
        instances.stacked([first, other])
    assert instances.stacked([first._replace(rule=None), other._replace(rule=None)]).rule is None


def test_the_rule_passes_jit_and_vmap_beside_the_arrays():
    def train(W, problem):
        return descent.train(W, problem, steps=2)

    lifted = jax.jit(jax.vmap(train))(MANY, instances.problems(2))
    assert lifted.rule == rule_of()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(lifted))
    # A function compiled of a run is not taken for that of another rule.
    model_of = jax.jit(lambda run: jnp.asarray(run.rule.steps))
    assert [int(model_of(descent.train(START, instances.problem(), steps=steps))) for steps in (2, 3)] == [2, 3]
