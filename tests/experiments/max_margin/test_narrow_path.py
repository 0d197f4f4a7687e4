"""Synthetic measurements of narrow regularization paths and descents."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.narrow_path import EXPERIMENT, estimate
from tests.experiments.synthetic import synthetic

RADII, SEEDS = np.geomspace(1.0, 10_000.0, 9), 32
VERDICTS = {"narrow-path:descent": "does not hold", "narrow-path:margin": "does not hold"}


def measured(**changes):
    """Paths approach the best solution, and descent ends at other stationary points."""
    return {f"m={m}": run(m, **changes) for m in (1, 2)}


def run(m, above=30, there=2, missed=0):
    """A run of m columns with so many seeds of rank above m; every second descent ends at the optimal tokens."""
    seed, rng = np.arange(SEEDS), np.random.default_rng(m)
    wobble, flat = 1e-3 * np.sin(seed), np.ones((SEEDS, RADII.size))
    of_radius = {
        "distance": np.minimum(1.0, 5.0 / RADII) * rng.uniform(0.8, 1.2, (SEEDS, 1)),
        "share": flat - 0.5 / RADII,
        "residual": 1e-9 * flat,
        "agreeing": 0.3 * flat,
        "drawn": flat > 0,
        "minimum": flat > 0,
    }
    return synthetic(
        SEEDS,
        {"weights.m": m, "attempted": SEEDS + 2, "unsolved": 2},
        {"radius": RADII},
        rank=np.where(seed < above, m + 1, m),
        bound=0.3 + wobble,
        missed=seed < missed,
        optimal=seed % there == 0,
        margin=0.3 + wobble,
        ahead=0.35 + wobble,
        correlation=0.8 + wobble,
        reached=0.999 + 1e-2 * wobble,
        **{name: (("seed", "radius"), values) for name, values in of_radius.items()},
    )


def test_only_seeds_of_higher_rank_are_estimated():
    summary = estimate(run(2, above=21), jax.random.key(0))
    assert (summary.attrs["above"], summary.attrs["there"], summary.sizes["seed"]) == (21, 11, 21)
    np.testing.assert_allclose(summary["exponent"], -1.0)
    assert estimate(run(2, above=21, missed=25), jax.random.key(0)).attrs["missed"] == 21
    with pytest.raises(ValueError, match="narrow-path: expected a kept seed of rank above m = 2, found none"):
        estimate(run(2, above=0), jax.random.key(0))


def judged(runs):
    summaries = EXPERIMENT.estimates(runs, jax.random.key(0))
    return [claim.judge(summaries) for claim in EXPERIMENT.claims]


def test_few_seeds_of_higher_rank_or_at_the_optimal_tokens_and_small_radii_decide_nothing():
    assert all(one.note.startswith("12 kept seeds are too few") for one in judged(measured(above=12)))
    *_, margin = judged(measured(there=10))
    assert margin.note.startswith("For seeds where descent ends at the optimal tokens: 3 kept seeds are too few")
    short = {name: one.isel(radius=slice(5)) for name, one in measured().items()}
    assert all(one.note.startswith("Radii up to 100 are too small") for one in judged(short))


def test_paths_that_are_no_minimizers_and_solutions_with_a_smaller_margin_decide_nothing():
    limit, descent, _ = judged(measured(missed=1))
    assert (limit.verdict, descent.verdict) == ("not decided", "does not hold")
    assert limit.note.startswith("In 1 of 30 seeds at m=1, 1 of 30 seeds at m=2 the best")
    runs = measured()
    runs["m=2"]["share"][3, -1] = 1.01
    limit, *_ = judged(runs)
    assert limit.verdict == "not decided"
    assert limit.note.startswith("In 0 of 30 seeds at m=1, 1 of 30 seeds at m=2 the path has a larger margin")


def test_seeds_on_their_way_to_the_margin_of_the_path_do_not_refute_it():
    runs = measured()
    runs["m=1"]["ahead"][:] = 1.0
    summary = estimate(runs["m=1"], jax.random.key(0))
    assert (summary.attrs["short"], summary.attrs["stay"]) == (15, 0)
    assert float(summary["margin_there_low"]) == 0
    assert float(summary["margin_there_high"]) == 1
