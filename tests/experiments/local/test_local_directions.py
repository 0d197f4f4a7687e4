"""Synthetic measurements of starts along solutions, the starts that are recorded, and how their runs are measured."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import Problem, data, descent, heads, initial, losses, metrics, svm, tokens
from jaxattn.experiments.local.local_directions import EXPERIMENT, summarize
from jaxattn.experiments.local.local_directions.record import Along, Directions
from jaxattn.records import load
from jaxattn.study.settings import recording

RADII = [10.0, 100.0]
VERDICTS = {}


def measured():
    """Descent leaves 40 and 2 of 100 locally optimal starts at the two radii, and all of 300 others."""
    return {"all starts": starts((40, 2))}


def starts(left, problems=40, local=100, others=300):
    """Starts of which so many locally optimal ones are left at each radius."""
    start = np.arange(local + others)
    stayed = np.stack([(start >= count) & (start < local) for count in left], axis=1)
    return xarray.Dataset(
        {
            "locally": (("start",), start < local),
            "gap": (("start",), np.where(start < local, 0.3, -0.3)),
            "length": (("start",), np.full(start.size, 2.0)),
            "slack": (("start",), np.where(start < local // 2, 0.1, np.inf)),
            "seed": (("start",), start % problems),
            "stayed": (("start", "radius"), stayed),
        },
        {"radius": RADII},
        {"steps": 4000, "attempted": start.size + 14, "kept": start.size, "infeasible": 12, "unsolved": 2},
    )


def test_shares_left_are_estimated_over_problems_and_so_is_their_change():
    summary = summarize({"all starts": starts((40, 6))}, jax.random.key(0))["all starts"]
    np.testing.assert_allclose(summary["left"].sel(of="local"), [0.4, 0.06])
    np.testing.assert_allclose(summary["left"].sel(of="not local"), 1)
    np.testing.assert_allclose(summary["rise"], [-0.34])
    assert summary["starts"].values.tolist() == [300, 100]
    # Six starts of one problem count as little more than one.
    together = starts((40, 6)).assign(seed=("start", np.arange(400) // 9))
    wide = summarize({"all starts": together}, jax.random.key(0))["all starts"]
    assert float(wide["left_high"].sel(of="local")[1]) > float(summary["left_high"].sel(of="local")[1]) > 0.06


def test_too_few_problems_decide_nothing():
    summaries = summarize({"all starts": starts((40, 0), problems=7)}, jax.random.key(0))
    assert "7 kept seeds are too few" in EXPERIMENT.claims[0].judge(summaries).note


LAW, START, RULE = data.Spheres(n=2, T=3, d=[3, 2]), Along(RADII), descent.normalized_gd(0.1, 0.0, 0.0)


def setting(law: Any = LAW, start: Any = START):
    return Directions(law, start, RULE, losses.logistic, heads.linear, seeds=3, key=1, steps=2000)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("directions") / "record.zarr"
    recording.run(setting(), path, {"attempted": 3})
    return load(path)


@pytest.mark.slow
def test_every_choice_is_started_at_each_radius_along_its_own_solution(record):
    assert record["alpha"].values[1, 0].tolist() == [list(pair) for pair in itertools.product(range(3), repeat=2)]
    assert record.attrs["kept"] == 3
    for s, k, c in ((0, 0, 0), (1, 1, 4), (2, 0, 7)):
        problem = Problem(**{name: record[name].values[s, k] for name in ("X", "Z", "Y", "v")})
        solution = svm.solve(svm.token_constraints(problem, record["alpha"].values[s, k, c]))
        assert int(record["status"][s, k, c]) == int(solution.status) == svm.Status.OPTIMAL
        for r, radius in enumerate(RADII):
            start = jnp.asarray(record["W_initial"].values[s, k, c, r])
            np.testing.assert_allclose(metrics.norm(start), radius, rtol=1e-12)
            assert metrics.correlation(start, solution.W) > 1 - 1e-12
            alone = descent.train(start, problem, optimizer=RULE, steps=2000)
            np.testing.assert_allclose(record["W"].values[s, k, c, r], alone.weights, rtol=1e-6, atol=1e-6)


def test_descent_stays_where_alpha_is_locally_optimal_and_far_enough_out(record):
    found = EXPERIMENT.measure(record)
    assert found.attrs == {"attempted": 54, "kept": 54, "infeasible": 0, "unsolved": 0}
    locally, stayed = found["locally"].values, found["stayed"].values
    np.testing.assert_array_equal(locally, found["gap"].values > 0)
    assert 6 <= locally.sum() < 40  # The optimal tokens of every problem at least.
    assert not stayed[~locally].any()
    far = (found["slack"] * found["radius"] / found["length"]).values[locally] > 20
    assert far.any()
    assert stayed[locally][far].all()
    assert (found["correlation"].values[locally][far] > 0.999).all()
    assert found["d"].values.tolist() == ([3] * 9 + [2] * 9) * 3
    problems = Problem(**{name: np.concatenate(record[name].values) for name in ("X", "Z", "Y", "v")})
    optimal = jax.vmap(tokens.optimal)(problems)
    globally = (np.concatenate(record["alpha"].values) == np.asarray(optimal)[:, None]).all(axis=2).ravel()
    assert np.isinf(found["slack"].values[globally]).all()


@pytest.mark.parametrize("radii", [[], [0.0, 1.0], [3.0, 2.0], [1.0, float("inf")]])
def test_radii_that_are_none_are_refused(radii):
    with pytest.raises(ValueError, match="radii: expected positive numbers in increasing order"):
        Along(radii)


def test_laws_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="weights: expected starts along a solution"):
        setting(start=initial.free)
    with pytest.raises(TypeError, match="data: expected a law of several dimensions"):
        setting(law=data.three_tokens)


def test_starts_whose_run_is_not_finite_are_counted_and_not_measured(record):
    W = record["W"].copy(deep=True)
    W[0, 1, 2, 1, 0, 0] = np.nan
    W[2, 0, 8] = np.inf
    found = EXPERIMENT.measure(record.assign(W=W))
    assert found.attrs == {"attempted": 54, "kept": 52, "diverged": 2, "infeasible": 0, "unsolved": 0}
    assert found.sizes["start"] == 52
    assert np.isfinite(found["correlation"]).all()
