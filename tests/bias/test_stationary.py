"""KKT points: one row by hand, rules in their own norm and in another, a local one, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, data, descent, initial, models
from jaxattn.bias.checkpoints import as_run
from tests import instances

SEEDS = 8
GIVEN = {"steps": 3000, "snapshots": (500, 1000, 2000, 3000)}


def trained(problems, norm, start, step=0.1, **given):
    rule = descent.steepest(norm, descent.falling_step(step))
    return descent.train_batch(start, problems, optimizer=rule, **GIVEN | given)


def test_with_one_row_every_step_lies_along_it():
    problems = jax.vmap(lambda key: data.sphere(key, n=1, T=2, d=3))(jax.random.split(jax.random.key(0), SEEDS))
    zero = jnp.zeros((SEEDS, 3, 3))
    for norm in ("frobenius", "max"):
        run = trained(problems, norm, zero)
        np.testing.assert_allclose(bias.kkt(run, problems, norm).share, 1.0, rtol=1e-9)
        assert bias.kkt(run, problems, norm).near.tolist() == [1.0] * SEEDS
    # Signs of a row are at the angle of its l_1 and l_2 norms.
    row = np.asarray(trained(problems, "frobenius", zero).weights)
    cosine = np.abs(row).sum(axis=(1, 2)) / np.linalg.norm(row, axis=(1, 2)) / 3
    np.testing.assert_allclose(bias.kkt(run, problems).share, np.tile(cosine[:, None], 4), rtol=1e-9)


def test_factors_end_near_a_kkt_point_of_their_own_rule():
    problems = jax.vmap(lambda key: data.sphere(key, n=4, T=5, d=8))(jax.random.split(jax.random.key(1), SEEDS))
    start = jax.vmap(lambda key: initial.factored(key, 8))(jax.random.split(jax.random.key(2), SEEDS))
    own = bias.kkt(trained(problems, "frobenius", start, 1.0), problems)
    other = bias.kkt(trained(problems, "max", start), problems)
    assert (own.near == 1).sum() >= SEEDS - 2
    assert (other.near == 0).sum() >= SEEDS - 2
    assert str(own).endswith("of 8 seeds end near a KKT point")


def test_few_snapshots_have_no_limit():
    run = trained(instances.problems(SEEDS), "max", jnp.zeros((SEEDS, 5, 5)), snapshots=(10, 3000))
    found = bias.kkt(run, instances.problems(SEEDS), "max")
    assert found.limit is None
    assert np.isnan(found.near).all()


def test_bad_input_is_named():
    problems, W = instances.problems(SEEDS), np.ones((SEEDS, 2, 5, 5))
    with pytest.raises(ValueError, match=r"^run: expected one of `models.plain`, with its rule"):
        bias.kkt(as_run(W, (1, 2)), problems)
    run = trained(problems, "max", jnp.zeros((SEEDS, 5, 5)), model=models.normalized())
    with pytest.raises(ValueError, match=r"^run: expected one of `models.plain`, with its rule"):
        bias.kkt(run, problems)
    run = trained(problems, "max", jnp.zeros((SEEDS, 5, 5)), snapshots=(0, 3000))
    with pytest.raises(ValueError, match="weights with a direction at every snapshot"):
        bias.kkt(run, problems)
