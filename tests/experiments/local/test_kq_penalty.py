"""Synthetic measurements of penalized descent on (K, Q), the ratios that are estimated, and the residual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import descent, losses
from jaxattn.experiments.local.kq_penalty import residual, summarize
from tests import instances
from tests.experiments.synthetic import synthetic

PENALTIES, PUBLISHED = (0.0, 1e-100, 1e-30, 1e-16, 1e-12, 1e-8), descent.PUBLISHED_EPSILON
SEEDS, STEPS = 20, np.array([100, 1000, 10_000])
VERDICTS = {"kq-penalty:published": "holds with a correction"}


def measured():
    """Distances fall with the penalty as on the regularization path; the published run oscillates about its point."""
    runs = {}
    for label, penalties in (("separate norms", PENALTIES), ("joint norm", PENALTIES), ("small start", (0.0, 1e-16))):
        for penalty in penalties:
            # As the regularization path.
            off = 3 / np.log(penalty) ** 2 if penalty else 6e-3
            runs[f"{label}, penalty {penalty:g}"] = run(penalty, off)
    runs["as published"] = run(PUBLISHED, 2e-3)
    runs["published rule, penalty 0"] = run(0.0, 0.5)
    return runs | {"decreasing steps": run(PUBLISHED, 2e-3, level=0.01)}


def run(penalty, off, level=0.4):
    """A run at this distance from both solutions, and with this residual, with a spread over seeds."""
    spread = np.resize([0.95, 1 / 0.95], SEEDS)
    one = synthetic(
        SEEDS,
        {"steps": 10_000},
        {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": STEPS},
        off=(("seed", "norm", "snapshot"), off * np.ones((SEEDS, 2, 3)) * spread[:, None, None]),
    )
    return one.assign(residual=("seed", level * spread)) if penalty else one


def test_ratios_are_geometric_means_over_the_seeds_that_both_runs_kept():
    runs = measured()
    factors = np.geomspace(0.5, 4, SEEDS)
    runs["small start, penalty 1e-16"]["off"] *= xarray.DataArray(factors, dims="seed")
    summaries = summarize(runs, jax.random.key(0))
    np.testing.assert_allclose(summaries["small start, penalty 1e-16"]["start"], np.sqrt(2))
    np.testing.assert_allclose(summaries["separate norms, penalty 1e-30"]["next"], (16 / 30) ** 2)
    np.testing.assert_allclose(summaries["separate norms, penalty 1e-30"]["all"], (8 / 30) ** 2)
    runs["separate norms, penalty 1e-16"] = runs["separate norms, penalty 1e-16"].isel(seed=slice(5))
    summaries = summarize(runs, jax.random.key(0))
    np.testing.assert_allclose(summaries["small start, penalty 1e-16"]["start"], np.exp(np.log(factors[:5]).mean()))
    runs["small start, penalty 1e-16"] = runs["small start, penalty 1e-16"].isel(seed=slice(5, 9))
    with pytest.raises(ValueError, match="kq-penalty: expected seeds that both of"):
        summarize(runs, jax.random.key(0))


@pytest.mark.parametrize("penalty", [1e-3, 1e-12])
def test_the_residual_is_that_of_the_penalized_risk(penalty):
    one, weights = instances.problem(), instances.factored(m=2)
    if penalty < 1e-6:
        # Where the attention has saturated, and both gradients are of about one length.
        weights = jax.tree.map(lambda leaf: 4.0 * leaf, descent.train(weights, one, steps=200).weights)
    of_risk = jax.tree.map(np.asarray, jax.jit(jax.grad(losses.risk))(weights, one))
    of_penalty = jax.tree.map(lambda leaf: 2 * penalty * np.asarray(leaf), weights)
    found = jax.jit(residual)

    def length(pair):
        return np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(pair)))

    expected = length(jax.tree.map(np.add, of_risk, of_penalty)) / (length(of_risk) + length(of_penalty))
    np.testing.assert_allclose(found(weights, one, jnp.asarray(penalty)), expected, rtol=1e-3)
    # It does not see a penalty's size: that and the gradient's may be far below the smallest square.
    far = jax.tree.map(lambda leaf: 20.0 * leaf, weights)
    assert 0 <= found(far, one, jnp.asarray(1e-200)) <= 1 + 1e-12
