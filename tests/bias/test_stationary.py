"""KKT points: one row by hand, rules in their own norm and in another, a local one, and bad input."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxattn import bias, data, descent, initial, models
from tests import instances

SEEDS = 8
PROBLEMS = instances.problems(SEEDS)


def trained(problems, norm, start, step=0.1, every=500):
    rule = descent.steepest(norm, descent.falling_step(step))
    snapshots = tuple(every * k for k in (1, 2, 4, 6))
    return descent.train_batch(start, problems, optimizer=rule, steps=snapshots[-1], snapshots=snapshots)


def test_with_one_row_every_step_lies_along_it():
    problems = jax.vmap(lambda key: data.sphere(key, n=1, T=2, d=3))(jax.random.split(jax.random.key(0), SEEDS))
    runs = {norm: trained(problems, norm, np.zeros((SEEDS, 3, 3)), every=5) for norm in ("frobenius", "max")}
    for norm, run in runs.items():
        found = bias.kkt(run, problems, norm)
        np.testing.assert_allclose(found.share, 1.0, rtol=1e-9)
        assert found.near.tolist() == [1.0] * SEEDS
    # Signs of a row are at the angle of its l_1 and l_2 norms.
    row = np.asarray(runs["frobenius"].weights)
    cosine = np.abs(row).sum(axis=(1, 2)) / np.linalg.norm(row, axis=(1, 2)) / 3
    np.testing.assert_allclose(bias.kkt(runs["max"], problems).share, np.tile(cosine[:, None], 4), rtol=1e-9)


def test_factors_end_near_a_kkt_point_of_their_own_rule():
    problems = jax.vmap(lambda key: data.sphere(key, n=4, T=5, d=8))(jax.random.split(jax.random.key(1), SEEDS))
    start = jax.vmap(lambda key: initial.factored(key, 8))(jax.random.split(jax.random.key(2), SEEDS))
    own = bias.kkt(trained(problems, "frobenius", start, 1.0), problems)
    other = bias.kkt(trained(problems, "max", start), problems)
    assert (own.near == 1).sum() >= SEEDS - 2
    assert (other.near == 0).sum() >= SEEDS - 2
    assert str(own).endswith("of 8 seeds end near a KKT point")


def test_bad_input_is_named_and_few_snapshots_have_no_limit():
    run = trained(PROBLEMS, "max", np.zeros((SEEDS, 5, 5)), every=1)
    few = run._replace(snapshots=run.snapshots[:, 2:], snapshot_steps=run.snapshot_steps[:, 2:])
    found = bias.kkt(few, PROBLEMS, "max")
    assert found.limit is None
    assert np.isnan(found.near).all()
    assert run.rule is not None
    for rule in (None, replace(run.rule, model=models.normalized())):
        with pytest.raises(ValueError, match=r"^run: expected one of `models.plain`, with its rule"):
            bias.kkt(run._replace(rule=rule), PROBLEMS)
    with pytest.raises(ValueError, match="weights with a direction at every snapshot"):
        bias.kkt(run._replace(snapshots=0 * run.snapshots), PROBLEMS)
