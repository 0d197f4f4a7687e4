"""Heads: their formulas, and that one which does not fit the problem's v is named before anything is computed."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, heads, initial, losses, records, tokens
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Evenly
from jaxattn.study.settings.training import Training
from tests import instances

LAYERED = data.mlp(jax.random.key(3), instances.n, instances.T, instances.d, width=6)


def test_formulas():
    x, v, V = (np.random.default_rng(0).normal(size=size) for size in (5, 5, (5, 6)))
    np.testing.assert_allclose(heads.linear(jnp.asarray(x), jnp.asarray(v)), v @ x, rtol=1e-14)
    np.testing.assert_allclose(heads.Quadratic(0.7)(jnp.asarray(x), jnp.asarray(v)), v @ x - 0.7 * x @ x, rtol=1e-14)
    hidden = [max(float(x @ column), 0.0) for column in V.T]
    np.testing.assert_allclose(heads.mlp(jnp.asarray(x), jnp.asarray(V)), sum(hidden), rtol=1e-14)


def test_scores_and_optimal_tokens_of_a_layer():
    expected = LAYERED.Y[:, None] * np.maximum(np.asarray(LAYERED.X) @ np.asarray(LAYERED.v), 0).sum(axis=2)
    np.testing.assert_allclose(tokens.scores(LAYERED, heads.mlp), expected, rtol=1e-14)
    np.testing.assert_array_equal(tokens.optimal(LAYERED, heads.mlp), expected.argmax(axis=1))


def test_equal_heads_are_equal_values():
    assert heads.Quadratic(0.5) == heads.Quadratic(0.5) != heads.Quadratic(0.6)
    assert len({heads.Quadratic(0.5), heads.Quadratic(0.5)}) == 1


@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf")])
def test_a_penalty_that_is_no_penalty_is_refused(penalty):
    with pytest.raises(ValueError, match=r"^penalty: expected a finite number of at least 0"):
        heads.Quadratic(penalty)


USES = {
    "risk": lambda problem, head: losses.risk(instances.free(), problem, head=head),
    "scores": tokens.scores,
    "train": lambda problem, head: descent.train(instances.free(), problem, steps=2, head=head),
    "train_batch": lambda problem, head: descent.train_batch(
        *instances.stacked([(instances.free(), problem)]), steps=2, head=head
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("head", "problem", "message"),
    [
        (heads.linear, LAYERED, r"^v: expected a direction, shape \(d,\), for the linear head, found shape \(5, 6\)"),
        (heads.Quadratic(0.3), LAYERED, r"^v: expected a direction.* for the quadratic head, found shape \(5, 6\)"),
        (
            heads.mlp,
            instances.problem(),
            r"^v: expected a layer, shape \(d, width\), for the mlp head, found shape \(5,\)",
        ),
    ],
)
def test_a_head_that_does_not_fit_the_problem_is_named(use, head, problem, message):
    with pytest.raises(ValueError, match=message):
        USES[use](problem, head)


@pytest.mark.slow
def test_a_record_names_the_axes_of_a_layer(tmp_path):
    law, optimizer = partial(data.mlp, n=3, T=4, d=5, width=6), descent.normalized_gd(0.1)
    setting = Training(law, initial.free, optimizer, losses.logistic, heads.mlp, 2, key=1, steps=5, snapshots=Evenly(5))
    recording.run(setting, tmp_path / "record.zarr", {"config": "{}"})
    record = records.load(tmp_path / "record.zarr")
    assert record["v"].dims == ("seed", "feature", "unit")
    assert record["v"].shape == (2, 5, 6)
    assert replace(setting, law=partial(data.sphere, n=3, T=4, d=5)).dims("v") == ("feature",)


def test_descent_with_a_layer_is_descent_on_the_risk():
    W = instances.free()
    run = descent.train(W, LAYERED, optimizer=descent.normalized_gd(0.1), steps=30, head=heads.mlp)
    slope_of = jax.jit(jax.grad(partial(losses.risk, problem=LAYERED, head=heads.mlp)))
    for _ in range(30):
        slope = slope_of(W)
        W = W - 0.1 * slope / jnp.linalg.norm(slope)
    np.testing.assert_allclose(run.weights, W, rtol=0, atol=1e-10)
