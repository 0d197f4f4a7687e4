"""Synthetic measurements of regularization paths, and the exponents and views of them."""

import jax
import numpy as np

from jaxattn.experiments.max_margin.regularization_path import EXPERIMENT, view
from tests.experiments.synthetic import synthetic

RADII, SEEDS = np.geomspace(1.0, 1000.0, 13), 90
VERDICTS = {}


def measured():
    """Both paths approach their own solutions like 1 / R."""
    return {"W": run("frobenius"), "KQ": run("nuclear"), "local": local()}


def local():
    """Local paths that approach the solution of their tokens like 1 / R."""
    radii = np.geomspace(300.0, 3000.0, 5)
    own = 5.0 / radii * np.random.default_rng(4).uniform(0.8, 1.2, (SEEDS, 1))
    radius = ("seed", "radius")
    return synthetic(
        SEEDS,
        {},
        {"radius": radii},
        distance=(radius, own),
        inside=(radius, np.full(own.shape, 0.9)),
        within=(radius, np.ones(own.shape, bool)),
        beaten=(radius, np.zeros(own.shape, int)),
        residual=(radius, np.full(own.shape, 1e-9)),
        optimal=np.arange(SEEDS) < 3,
    )


def run(ball):
    """Paths of seeds of which every third is solved from one end only, and every third but one has two minima."""
    own = np.minimum(1.0, 5.0 / RADII) * np.random.default_rng(3).uniform(0.8, 1.2, (SEEDS, 1))
    distance = np.stack([own, np.full_like(own, 0.4)], axis=1)
    apart = np.array([np.inf, 1e-9, 0.1])[np.arange(SEEDS) % 3]
    radius = ("seed", "radius")
    return synthetic(
        SEEDS,
        {"ball": ball, "attempted": SEEDS + 2, "unsolved": 2},
        {"norm": np.array(sorted(["frobenius", "nuclear"], key=ball.__ne__), object), "radius": RADII},
        distance=(("seed", "norm", "radius"), distance),
        off=(("seed", "norm", "radius"), distance**2 / 4),
        selected=(radius, np.ones(own.shape, bool)),
        apart=(radius, np.tile(apart[:, None], (1, RADII.size))),
        residual=(radius, np.full(own.shape, 1e-9)),
        solved=(("attempt", "radius"), np.ones((SEEDS + 2, RADII.size), bool)),
    )


def test_the_exponent_is_that_of_the_power_and_the_ratio_one_of_both_distances():
    summaries = EXPERIMENT.estimates(measured(), jax.random.key(0))
    for ball, summary in zip(("frobenius", "nuclear"), summaries.values(), strict=False):
        np.testing.assert_allclose(summary["exponent"], -1.0)
        end = summary["distance"].isel(radius=-1)
        np.testing.assert_allclose(summary["ratio"], end.sel(norm=ball) / 0.4)
        np.testing.assert_allclose([summary["apart"][-1], summary["one_way"][-1]], 1 / 3)


def test_the_view_has_the_distances_of_every_seed():
    for path, run in zip(view(measured())["paths"], measured().values(), strict=False):
        assert np.shape(path["distance"]["nuclear"]) == (SEEDS, RADII.size)
        np.testing.assert_allclose(path["distance"]["nuclear"], run["distance"].sel(norm="nuclear"), rtol=5e-3)
        np.testing.assert_allclose(path["apart"], 1 / 3, atol=5e-4)
