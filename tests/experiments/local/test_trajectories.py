"""Synthetic measurements of trajectories, the seed that is drawn, and the quantiles of all seeds."""

from collections.abc import Sequence

import jax
import numpy as np
import pytest

from jaxattn.experiments.local.trajectories import summarize, view
from tests.experiments.synthetic import synthetic

SEEDS = 200
VERDICTS = {"trajectories-3:KQ": "holds with a correction", "trajectories-5:KQ": "holds with a correction"}
# Correlations with the own solution at the end: of all seeds near 1, and of four in five.
ALL, MOST = np.full(SEEDS, 0.998), np.resize([0.999] * 4 + [0.6], SEEDS)


def measured():
    """Along the exact gradient direction, all paths of W and most of those of (K, Q) are parallel to their rays.

    The other paths of (K, Q) rest with a constant step, and still approach their rays with steps that fall.
    """
    return {
        "W": run("free_zero", ALL),
        "W, exact": run("free_zero", ALL, last=20_000),
        "KQ": run("factored_zero", ALL),
        "KQ, exact": run("factored_zero", MOST, last=20_000, before=0.6),
        "KQ, falling": run("factored_zero", MOST, last=200_000, before=0.4),
    }


def run(weights, final, last=2000, before=0.5, seeds: Sequence[int] = range(SEEDS)):
    """A run with these correlations with its own solution at the last step, and the same for all seeds before."""
    steps, rng, count = np.array([last // 10, last // 2, last]), np.random.default_rng(0), len(seeds)
    correlation = np.full((count, 2, 3), before)
    correlation[:, ["free_zero", "factored_zero"].index(weights), 2] = final
    directions = rng.normal(size=(count, 2, 2))
    return synthetic(
        SEEDS,
        {"weights": weights, "steps": last, "attempted": SEEDS + 3, "infeasible": 3},
        {"seed": list(seeds), "norm": np.array(["frobenius", "nuclear"], object), "snapshot": steps},
        correlation=(("seed", "norm", "snapshot"), correlation),
        grows=np.ones(count, bool),
        X=(("seed", "input", "token", "feature"), rng.normal(size=(count, 2, 3, 2))),
        ray=(("seed", "norm", "input", "feature"), np.stack([directions] * 2, axis=1)),
        path=(("seed", "snapshot", "input", "feature"), steps[:, None, None] * directions[:, None]),
        selected=(("seed", "input"), np.zeros((count, 2), int)),
    )


def test_the_seed_drawn_is_the_median_of_those_that_all_runs_kept():
    runs = {"W": run("free_zero", [0.9, 0.99, 0.999, 0.5, 0.7], seeds=[0, 3, 5, 6, 7])}
    runs["KQ"] = run("factored_zero", [0.2, 0.1, 0.3, 0.4, 0.5, 0.6], seeds=[1, 3, 4, 5, 6, 7])
    summaries = summarize(runs, jax.random.key(0))
    # Of the seeds 3, 5, 6, 7, at 0.99, 0.999, 0.5 and 0.7, the lower one of the two in the middle.
    assert [int(summary["seed"]) for summary in summaries.values()] == [7, 7]
    np.testing.assert_array_equal(summaries["W"]["path"], runs["W"]["path"].values[4])
    assert summaries["KQ"].attrs["rank"] == 5 / 6
    np.testing.assert_allclose(summaries["W"]["off_50"], [0.5, 0.5, 0.1])
    apart = runs | {"KQ": run("factored_zero", [0.2, 0.1], seeds=[1, 2])}
    with pytest.raises(ValueError, match=r"^trajectories: no seed was kept in all runs, counts .*'infeasible': 3"):
        summarize(apart, jax.random.key(0))


def test_the_view_shows_seeds_at_their_place_among_all():
    seen = view(measured())
    assert [seed["place"] for seed in seen["seeds"]][:2] == ["median", "lowest tenth"]
    assert seen["steps"]["KQ, exact"] == [2000, 10_000, 20_000]
    # Ties are sorted by the number of the seed.
    assert [seed["seed"] for seed in seen["seeds"]] == [99, 19, 49, 149, 179]
    assert np.shape(seen["seeds"][0]["runs"]["W"]["path"]) == (3, 2, 2)
