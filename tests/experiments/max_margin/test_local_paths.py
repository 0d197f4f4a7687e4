"""The tokens of local paths, the cone around their solution, and what is measured of a small record."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxattn import data, heads, losses, records, tokens
from jaxattn.experiments.max_margin import local_paths
from jaxattn.study.settings import recording
from jaxattn.study.settings.paths import Radii
from tests import instances


def test_directions_around_a_solution_are_on_the_boundary_of_the_cone():
    W = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    around = jax.jit(local_paths._around, static_argnums=3)(jax.random.key(1), W, jnp.asarray(0.9), 6)
    np.testing.assert_allclose(np.linalg.norm(around, axis=(1, 2)), 1.0)
    np.testing.assert_allclose(np.einsum("kde,de->k", around, W) / np.linalg.norm(W), 0.9)


def test_the_excess_is_that_over_the_risk_of_the_tokens():
    one = instances.problem()
    alpha = tokens.optimal(one).at[0].set((tokens.optimal(one)[0] + 1) % one.T)
    W = 40 * jnp.asarray(np.random.default_rng(2).normal(size=(one.d, one.d)))
    chosen = np.asarray(one.Y) * (np.asarray(one.X)[np.arange(one.n), tokens.selected(W, one)] @ np.asarray(one.v))
    excess = jax.jit(local_paths._excess)
    sign, size = excess(W, one, tokens.selected(W, one))
    least = np.mean(np.logaddexp(0, -chosen))
    # The mean over inputs is left out, as it is common to all W.
    np.testing.assert_allclose(sign * np.exp(size) / one.n, float(losses.risk(W, one)) - least, rtol=0.2)
    assert not np.isnan(excess(W, one, alpha)[1])


def test_the_paths_of_a_record_approach_the_solutions_of_their_tokens(tmp_path):
    law = partial(data.sphere, n=3, T=4, d=5)
    setting = local_paths.LocalPaths(law, losses.logistic, heads.linear, seeds=4, key=3, radii=Radii(300.0, 3000.0, 3))
    recording.run(setting, tmp_path / "record.zarr", {})
    record = records.load(tmp_path / "record.zarr")
    # The points whose risk is compared are drawn anew for each seed.
    assert np.unique(record["samples_key"], axis=0).shape == (4, 2)
    found = local_paths.measure(record)
    assert found.attrs["attempted"] == 4
    assert found.attrs["kept"] == found.sizes["seed"] > 0
    assert (found["distance"].isel(radius=-1) < 0.02).all()
    assert int(found["beaten"].sum()) == 0
