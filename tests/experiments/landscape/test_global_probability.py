"""The probability of the optimal tokens: what is read off weights, verdicts both ways, and what the figure draws."""

import itertools
import json

import jax
import numpy as np
import pytest
import xarray

from jaxattn import svm, tokens
from jaxattn.experiments.landscape.global_probability import claims as global_probability
from jaxattn.experiments.landscape.global_probability import figure
from jaxattn.study.claims import Verdict
from tests import instances
from tests.instances import drawn_lines

KEY = jax.random.key(0)
DIMENSIONS, SIZES = (4, 10, 20), ((5, 5), (10, 5), (5, 10))
# Close to the independent run; less with more inputs and tokens, more with d.
SHARES = {(5, 5): (0.6, 0.9, 0.97), (10, 5): (0.12, 0.65, 0.87), (5, 10): (0.45, 0.72, 0.82)}


def measured(weights, n, T, d, share, seeds=1000, unsaturated=0, steps=1500):
    globally = np.arange(seeds) < share * seeds
    saturated = np.arange(seeds) >= unsaturated
    attrs = {"run": f"{weights} n={n} T={T} d={d}", "weights": weights, "n": n, "T": T, "d": d, "steps": steps}
    attrs |= {"attempted": seeds, "kept": seeds - unsaturated, "diverged": 0, "ambiguous": unsaturated}
    variables = {"saturated": (("seed",), saturated), "globally": (("seed",), globally)}
    return xarray.Dataset(variables, {"seed": np.arange(seeds)}, attrs)


def summarized(changes=None, **more):
    runs = {}
    for weights, (n, T), (k, d) in itertools.product(("W", "KQ"), SIZES, enumerate(DIMENSIONS)):
        share = (changes or {}).get((weights, n, T, d), SHARES[n, T][k] + (0.03 if weights == "KQ" and k == 0 else 0.0))
        one = measured(weights, n, T, d, share, **more)
        runs[one.attrs["run"]] = one
    summaries, claims = global_probability.summarize(runs, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, set()),
        ({("W", 5, 10, 20): 0.6}, {"d", "independent"}),
        ({("KQ", 10, 5, 4): 0.75, ("KQ", 10, 5, 10): 0.75}, {"n", "independent"}),
        ({("KQ", 5, 10, 4): 0.72, ("KQ", 5, 10, 10): 0.74}, {"T"}),
        ({("W", 5, 5, 4): 0.47, ("W", 5, 10, 4): 0.28, ("KQ", 10, 5, 4): 0.26}, {"independent"}),
        ({("W", 5, 5, 4): 0.47}, set()),  # One of eighteen beyond two standard errors is chance.
    ],
)
def test_a_trend_fails_where_neighbouring_points_are_apart_in_the_other_sense(changes, fails):
    _, claims = summarized(changes)
    assert {name for name, claim in claims.items() if claim.verdict is Verdict.FAILS} - fails == set()
    for name in fails:
        assert claims[name].verdict is Verdict.FAILS, name


def test_a_curve_with_ends_that_overlap_is_a_correction():
    _, claims = summarized({("KQ", 5, 10, 4): 0.62})
    assert claims["T"].verdict is Verdict.CORRECTED
    assert "overlapping: those to KQ n=5 T=10 d=4)" in claims["T"].note
    assert claims["d"].verdict is Verdict.HOLDS


@pytest.mark.parametrize("little", [{"seeds": 8}, {"steps": 200}])
def test_little_is_not_decided(little):
    assert {claim.verdict for claim in summarized(**little)[1].values()} == {Verdict.OPEN}


def test_a_run_that_has_not_saturated_counts_as_not_optimal():
    summaries, claims = summarized(unsaturated=100)
    run = summaries["W"].sel(run="W n=5 T=5 d=4")
    assert run["global"] == 0.5
    assert run["global_low"] < 0.5 < run["global_high"]
    assert claims["d"].counts["W n=5 T=5 d=4"] == {"attempted": 1000, "kept": 900, "diverged": 0, "ambiguous": 100}


def test_differences_are_counted_in_the_standard_errors_of_both_runs():
    # 0.6 of 1000 and 0.5 of 100, each with a hit and a miss more: 601 of 1002 and 51 of 102.
    error = np.sqrt(0.5998 * 0.4002 / 1002 + 0.25 / 102)
    np.testing.assert_allclose(global_probability._standard_errors(0.6, 1000, 0.5, 100), 0.0998 / error, rtol=1e-3)
    assert abs(global_probability._standard_errors(1.0, 50, 1.0, 100)) < 1
    assert [global_probability._by_chance(count) for count in (1, 20, 30)] == [0, 3, 3]


def test_the_optimal_tokens_are_read_off_the_final_weights():
    problems = instances.problems(4)
    alpha = np.array(jax.vmap(tokens.optimal)(problems))
    alpha[1, 0] = (alpha[1, 0] + 1) % instances.T
    solved = svm.solve_batch(jax.vmap(svm.token_constraints)(problems, alpha))
    assert (solved.status == svm.Status.OPTIMAL).all()
    W = solved.W * np.array([30.0, 30.0, 1.0, np.nan])[:, None, None]
    fields = {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    variables = {name: (("seed", *dims), np.asarray(getattr(problems, name))) for name, dims in fields.items()}
    record = xarray.Dataset(
        {**variables, "W": (("seed", "feature", "e"), W)},
        {"seed": np.arange(4)},
        {"config": json.dumps({"steps": 1500})},
    )
    found = global_probability.measure(record)
    assert found["saturated"].values.tolist() == [True, True, False]
    assert found["globally"].values.tolist() == [True, False, True]
    assert {name: found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous")} == {
        "attempted": 4,
        "kept": 2,
        "diverged": 1,
        "ambiguous": 1,
    }
    assert found.attrs["run"] == f"W n={instances.n} T={instances.T} d={instances.d}"


def test_the_figure_draws_every_run():
    summaries, _ = summarized()
    drawn = figure.draw(summaries)
    for panel, fixed in zip(drawn.axes, "Tn", strict=True):
        curves = [y for _, y in drawn_lines(panel, least=len(DIMENSIONS))]
        expected = [
            one.isel(run=(one[fixed] == 5).values)["global"].values.reshape(2, -1) for one in summaries.values()
        ]
        np.testing.assert_array_equal(curves, np.concatenate(expected))
    assert "9000 of 9000 seeds kept" in drawn.get_supxlabel()
