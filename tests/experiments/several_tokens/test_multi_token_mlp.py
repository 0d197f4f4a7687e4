"""Synthetic distances of W from its descriptions under a ReLU head, and what is measured of a few trained runs."""

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.several_tokens import screening
from jaxattn.experiments.several_tokens.descriptions import SOLUTIONS, predict
from jaxattn.experiments.several_tokens.multi_token_mlp import EXPERIMENT, PUBLISHED, not_distinguishable
from jaxattn.study.claims import EXCLUDED, Verdict
from tests.experiments.synthetic import synthetic
from tests.instances import gives_up

pytestmark = pytest.mark.usefixtures("drawn_once")
SEEDS = 40
VERDICTS = {"multi-token-mlp:every": "does not hold", "multi-token-mlp:form": "does not hold"}


def measured():
    """The published means, and single tokens nearer than W_mm in the runs that the published selection excludes."""
    runs = {f"d = {d}{key}": run(d) for d in (4, 6, 8, 10) for key in ("", ", again")}
    exact = {"optimizer": "scale_free_gd", "steps": 100_000}
    return runs | {f"d = {d}, exact": run(d).assign_attrs(exact) for d in (4, 8)}


def run(d):
    """SEEDS runs that the published selection keeps, and as many that it excludes; each differs by a fifth."""
    spread, steps = 1 + 0.2 * np.resize([1.0, -1.0], SEEDS), np.array([100, 1000, 2000])
    ends = [*(by_d[d] for by_d in PUBLISHED.values()), 0.9]
    off = np.concatenate([np.outer(spread, ends), np.outer(spread, (0.02, 0.2, 0.15, 0.9))])
    size, seed = np.sqrt(steps / 2000), np.arange(2 * SEEDS)
    published, whole = seed < SEEDS, np.flatnonzero(seed % SEEDS < 10)
    return synthetic(
        SEEDS,
        {"data.d": d, "steps": 2000, "attempted": SEEDS + 5, "ambiguous": 5}
        | {"every_attempted": SEEDS + 6, "every_kept": SEEDS + 1, "every_finite": 5},
        {"seed": seed, "solution": np.array(SOLUTIONS, object), "snapshot": steps},
        off=(("seed", "solution", "snapshot"), off[:, :, None] / size**1.5),
        size=np.where(published, 50.0, 20.0)[:, None] * size,
        several=np.ones(seed.size, bool),
        published=published,
        every=~published | (seed == 0),
        whole_seed=("whole", whole),
        foretold=("whole", 0.5 * off[whole, 0]),
        fitted=("whole", off[whole, 0]),
    )


def test_a_predicted_finite_part_that_is_far_off_refutes_the_prediction_alone():
    runs = {name: one.assign(foretold=one["foretold"] + 0.5) for name, one in measured().items()}
    summaries = EXPERIMENT.estimates(runs, jax.random.key(0))
    found = {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in EXPERIMENT.claims}
    assert (found["predicted"], found["selected"]) == (Verdict.FAILS, Verdict.HOLDS)


def test_a_mean_with_a_wide_interval_is_not_distinguishable_from_three_times_the_published_one():
    summaries = EXPERIMENT.estimates(measured(), jax.random.key(0))
    selected = {f"d = {d}": summaries[f"d = {d}"] for d in (4, 6, 8, 10)}
    assert not_distinguishable(selected) == []
    error = xarray.where(selected["d = 10"]["solution"] == "W_mm", 0.01, selected["d = 10"]["off_error"])
    selected["d = 10"] = selected["d = 10"].assign(off_error=error)
    assert not_distinguishable(selected) == ["d = 10, W_mm"]


@pytest.fixture(scope="module")
def described(record):
    return EXPERIMENT.measure(record)


def test_every_attempt_is_counted_once_and_the_two_parts_share_their_runs(record, described):
    runs = screening.runs_of(record)
    published = screening.published(runs, labels=screening.labels_of_one_kind(runs))
    for prefix, reason in (("", published), ("every_", screening.unselected(runs))):
        reasons = {name: described.attrs[prefix + name] for name in EXCLUDED if prefix + name in described.attrs}
        assert described.attrs[prefix + "attempted"] == 40 == described.attrs[prefix + "kept"] + sum(reasons.values())
        assert described.attrs[prefix + "kept"] == int((reason < 0).sum())
        assert all(count == int((reason == EXCLUDED.index(name)).sum()) for name, count in reasons.items())
    assert int(described["published"].sum()) == described.attrs["kept"] > 0
    assert int(described["every"].sum()) == described.attrs["every_kept"] > described.attrs["kept"]
    assert described.attrs["ambiguous"] > 0 < described.attrs["labels"]


def test_attempts_end_with_the_last_run_that_is_needed(record, described, monkeypatch):
    kept = described["seed"].values[described["published"].values]
    monkeypatch.setattr(screening, "SEEDS", 3)
    few = EXPERIMENT.measure(record)
    assert few.attrs["kept"] == 3
    assert few.attrs["attempted"] == kept[2] + 1 == 3 + sum(few.attrs[reason] for reason in EXCLUDED)
    assert few["seed"].values[few["published"].values].tolist() == kept[:3].tolist()
    assert few.attrs["every_attempted"] == 3
    assert set(few["seed"].values[few["every"].values]) <= {0, 1, 2}


def test_runs_that_cannot_be_described_are_counted_as_unsolved(record, described):
    found = EXPERIMENT.measure(record, solver=gives_up)
    assert found.sizes["seed"] == found.attrs["kept"] == found.attrs["every_kept"] == 0
    assert found.attrs["unsolved"] == described.attrs["kept"]
    assert found.attrs["every_unsolved"] == described.attrs["every_kept"]


def test_the_prediction_is_that_of_the_runs_that_it_is_held_against(record, described):
    runs = screening.runs_of(record)
    selected = screening.selected_sets(runs)
    _, kind, several = predict(runs.problems, selected, None)
    whole = several.any(axis=1) & ((kind == 0) | ~several).all(axis=1)
    assert described["whole_seed"].values.tolist() == [s for s in np.flatnonzero(whole) if s in described["seed"]]
    np.testing.assert_array_equal(described["several"], several[described["seed"].values].any(axis=1))
    off = described["off"].sel(seed=described["whole_seed"].values, solution="W_SVMeq").isel(snapshot=-1)
    np.testing.assert_allclose(described["fitted"], off, atol=1e-9)
