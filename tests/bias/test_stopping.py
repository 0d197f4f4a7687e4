"""Runs with weight decay, planted: each optimizer ends on the sphere of its norm, with radius 1 / decay."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxattn import attention, bias, descent, losses
from jaxattn.bias import stopping
from jaxattn.bias.checkpoints import as_run
from tests import instances
from tests.svm.problems import NORMS

SEEDS, STEP, DECAY = 8, 0.05, 0.2


@cache
def run_of(norm: str, decay: float = DECAY):
    optimizer = descent.ScaleFree(*optax.chain(descent.steepest(norm, STEP), optax.add_decayed_weights(-STEP * decay)))
    start = jnp.zeros((SEEDS, 5, 5))
    return descent.train_batch(
        start, instances.problems(SEEDS), optimizer=optimizer, steps=3000, snapshots=(300, 1500, 3000)
    )


@pytest.mark.parametrize("norm", ["frobenius", "spectral", "max"])
def test_steepest_descent_with_decay_ends_on_its_norms_ball_of_radius_1_by_decay(norm):
    found = bias.finite(run_of(norm), instances.problems(SEEDS))
    at = stopping.NORMS.index(norm)
    assert found.verdict == bias.Verdict((norm,), decided=True)
    np.testing.assert_allclose(found.size[:, at], 1 / DECAY, rtol=1e-3)
    # Signs at a constant step chatter about entries whose gradient vanishes, which leaves a gap of up to .015.
    np.testing.assert_allclose(found.attained[:, at], 1, atol=0.02 if norm == "max" else 1e-6)
    assert str(found).startswith(f"no direction: the weights stopped growing at {norm} norm 5.0")
    assert found.counts == {"attempted": SEEDS, "kept": SEEDS, "diverged": 0}


def test_without_decay_it_is_not_decided():
    found = bias.finite(run_of("frobenius", 0.0), instances.problems(SEEDS))
    assert str(found) == f"not decided: the norm of W changes by 0.02 or more in {SEEDS} seeds"
    # ||W|| grows nearly like the number of steps.
    np.testing.assert_allclose(found.growth, np.log(10), rtol=0.05)


def test_a_gap_is_that_of_frank_wolfe_on_the_ball():
    """By automatic differentiation, at weights where the gradient is far from underflow."""
    run = run_of("max")
    W: Any = 0.01 * np.asarray(run.snapshots)
    near = run._replace(weights=W[:, -1], snapshots=W)
    found = bias.finite(near, instances.problems(SEEDS), ["max", "nuclear"])
    G: Any = np.asarray(jax.jit(jax.vmap(jax.grad(_risk)))(W[:, -1], instances.problems(SEEDS)))
    for at, name in enumerate(("max", "nuclear")):
        value, dual_value = NORMS[name]
        size, dual = (np.array([of(one) for one in many]) for of, many in ((value, W[:, -1]), (dual_value, G)))
        np.testing.assert_allclose(found.size[:, at], size)
        np.testing.assert_allclose(found.attained[:, at], -(G * W[:, -1]).sum(axis=(1, 2)) / (size * dual), atol=1e-9)


def _risk(W, problem):
    outputs = jnp.einsum("nt,ntd->nd", attention.probabilities(W, problem), problem.X)
    return jnp.mean(jax.vmap(losses.logistic)(problem.Y * (outputs @ problem.v)))


def attained(*columns):
    return np.stack([np.full(SEEDS, column, float) for column in columns], axis=1)


def test_the_rule_on_both_sides_of_its_thresholds():
    still, both = np.zeros(SEEDS), ("frobenius", "max")
    above, below = bias.CLOSE + 1e-9, bias.CLOSE - 1e-9
    assert stopping.of(both, still, attained(above, below)) == bias.Verdict(("frobenius",), decided=True)
    assert stopping.of(both, still, attained(above, above)).norms == both
    assert stopping.of(both, still, attained(below, below)) == bias.Verdict((), decided=True)
    some = attained(above, below)
    some[0] = below
    assert stopping.of(both, still, some).reason == "mixed: 7 of 8 seeds are stationary on the ball of frobenius"
    moving = still.copy()
    moving[[0, 1]] = stopping.STOPPED - 1e-9, -stopping.STOPPED
    assert stopping.of(both, moving, attained(1, 1)).reason == "the norm of W changes by 0.02 or more in 1 seeds"
    assert stopping.of(both, still[:7], attained(1, 1)[:7]).reason == "expected at least 8 seeds, found 7"
    some[0] = np.nan
    assert stopping.of(both, still, some).reason == "the gradient is 0 in 1 of 8 seeds"


def test_a_diverged_seed_is_counted():
    run = run_of("max")
    W = np.asarray(run.snapshots).copy()
    W[2, -1] = np.nan
    found = bias.finite(run._replace(weights=W[:, -1], snapshots=W), instances.problems(SEEDS))
    assert found.counts == {"attempted": SEEDS, "kept": SEEDS - 1, "diverged": 1}
    assert found.verdict.reason == "expected at least 8 seeds, found 7"
    with pytest.raises(ValueError, match="expected a seed whose weights are finite"):
        bias.finite(run._replace(snapshots=np.full_like(W, np.nan)), instances.problems(SEEDS))


def test_what_has_no_gradient_in_one_matrix_is_refused():
    run = run_of("max")
    with pytest.raises(ValueError, match="with its rule"):
        bias.finite(run._replace(rule=None), instances.problems(SEEDS))
    with pytest.raises(ValueError, match=r"two snapshots after step 0, found those of the steps \[0, 10\]"):
        bias.growth(as_run(np.ones((1, 2, 5, 5)), (0, 10)))


@pytest.mark.slow
def test_adamw_ends_at_entries_of_1_by_decay():
    """Its second moment must be short: with b2 = .999 the weights still grow after as many steps."""
    adamw = descent.ScaleFree(*optax.adamw(0.01, b2=0.95, eps=0.0, weight_decay=0.1))
    given: dict[str, Any] = {"optimizer": adamw, "steps": 20000, "snapshots": (10000, 20000)}
    run = descent.train_batch(jnp.zeros((SEEDS, 5, 5)), instances.problems(SEEDS), **given)
    found = bias.finite(run, instances.problems(SEEDS))
    assert found.verdict.norms == ("max",)
    np.testing.assert_allclose(found.size[:, 2], 10, rtol=1e-4)
