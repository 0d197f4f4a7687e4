"""Synthetic measurements of penalized descent on (K, Q), the ratios that are estimated, and the residual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import descent, losses
from jaxattn.experiments.local.kq_penalty import residual, summarize
from tests import instances

PENALTIES, PUBLISHED = (0.0, 1e-100, 1e-30, 1e-16, 1e-12, 1e-8), descent.PUBLISHED_EPSILON
SEEDS, STEPS = 20, np.array([100, 1000, 10_000])
VERDICTS = {
    "kq-penalty:published": "holds with a correction",
    "kq-penalty:normalization": "holds",
    "kq-penalty:start": "holds",
    "kq-penalty:penalized": "holds",
}


def measured():
    """Distances fall with the penalty as on the regularization path; the published run oscillates about its point."""
    runs = {}
    for label, optimizer in (("separate norms", "exact_gd"), ("joint norm", "joint_gd")):
        for penalty in PENALTIES:
            runs[f"{label}, penalty {penalty:g}"] = run(penalty, along_the_path(penalty), optimizer)
    runs["as published"] = run(PUBLISHED, 2e-3, "normalized_gd")
    runs["published rule, penalty 0"] = run(0.0, 0.5, "normalized_gd")
    for penalty in (0.0, 1e-16):
        runs[f"small start, penalty {penalty:g}"] = run(penalty, along_the_path(penalty), small=True)
    falling = run(PUBLISHED, 2e-3, "falling_gd", level=0.01)
    falling.attrs["optimizer.optimizer.penalty"] = falling.attrs.pop("optimizer.penalty")
    return runs | {"decreasing steps": falling}


def along_the_path(penalty):
    """The distance of the regularization path from the solution at a penalty."""
    return 3 / np.log(penalty) ** 2 if penalty else 6e-3


def run(penalty, off, optimizer="exact_gd", level=0.4, small=False):
    """A run at this distance from both solutions, and with this residual, with a spread over seeds."""
    spread = np.resize([0.95, 1 / 0.95], SEEDS)
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "off": (("seed", "norm", "snapshot"), off * np.ones((SEEDS, 2, 3)) * spread[:, None, None])
    }
    if penalty:
        variables["residual"] = (("seed",), level * spread)
    attrs = {"optimizer": optimizer, "optimizer.penalty": penalty, "steps": 10_000, "attempted": SEEDS, "kept": SEEDS}
    coordinates = {"seed": np.arange(SEEDS), "norm": np.array(["frobenius", "nuclear"], object), "snapshot": STEPS}
    return xarray.Dataset(variables, coordinates, attrs | ({"weights.scale": 0.01} if small else {}))


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
