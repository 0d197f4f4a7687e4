"""The probability of the optimal tokens: what is read off weights, verdicts both ways, and what the figure draws."""

import json

import jax
import numpy as np
import pytest
import xarray

from jaxattn import svm, tokens
from jaxattn.experiments.landscape.global_probability import claims, figure, independent
from jaxattn.experiments.landscape.global_probability.examples import DIMENSIONS, SIZES, run, runs
from jaxattn.experiments.landscape.global_probability.measure import measure
from jaxattn.study.claims import Verdict
from tests import instances

KEY = jax.random.key(0)
# Shares of all sizes, each a little above that of the independent run.
ABOVE = (0.64, 0.93, 0.99, 0.14, 0.69, 0.91, 0.45, 0.76, 0.87)


def judged(changes=None, **more):
    """The estimates of runs of 1000 seeds, and the judgements on them."""
    summaries = claims.summarize(runs(changes, **{"seeds": 1000, **more}), KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


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
    _, found = judged(changes)
    assert {name for name, one in found.items() if one.verdict is Verdict.FAILS} == fails


def test_a_curve_with_ends_that_overlap_is_not_decided():
    _, found = judged({("KQ", 5, 10, 4): 0.62})
    assert found["T"].verdict is Verdict.OPEN
    assert not found["T"].undecided
    assert "The ends overlap on the curves to KQ n=5 T=10 d=4." in found["T"].note
    # All rise, and none has come to rest short of 1.
    assert found["d"].verdict is Verdict.OPEN
    assert [one.outcome for one in found["d"].stated] == ["met", "met", "unclear"]


@pytest.mark.parametrize(
    ("share", "verdict"),
    # The share with 5 tokens is 0.63 of 1000, 0.600 to 0.659 by its interval.
    [
        (0.5, Verdict.HOLDS),
        (0.568, Verdict.HOLDS),
        (0.575, Verdict.OPEN),
        (0.685, Verdict.OPEN),
        (0.693, Verdict.FAILS),
    ],
)
def test_ends_have_to_be_apart(share, verdict):
    assert judged({("KQ", 5, 10, 4): share})[1]["T"].verdict is verdict


def test_trends_that_are_all_reversed_do_not_hold():
    shares = (0.9, 0.5, 0.1)
    changes = {(w, n, T, d): shares[k] for w in ("W", "KQ") for n, T in SIZES for k, d in enumerate(DIMENSIONS)}
    found = judged(changes)[1]
    assert found["d"].verdict is Verdict.FAILS
    assert (
        "0 of 12 pairs of neighbouring points have disjoint 95 % intervals in this direction, 12 in the other"
        in found["d"].note
    )
    assert found["n"].verdict is Verdict.OPEN
    assert found["n"].undecided == "No two compared points have disjoint intervals."


def test_one_size_is_no_curve():
    made = {name: one for name, one in runs(seeds=1000).items() if (one.attrs["n"], one.attrs["T"]) == (5, 5)}
    summaries = claims.summarize(made, KEY)
    verdicts = {claim.id.partition(":")[2]: claim.judge(summaries).verdict for claim in claims.CLAIMS}
    assert verdicts == {
        "d": Verdict.HOLDS,
        "n": Verdict.OPEN,
        "T": Verdict.OPEN,
        "independent": Verdict.OPEN,  # Three dimensions are too few for a mean difference that is close.
    }


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({("W", 5, 5, 4): 0.47}, Verdict.HOLDS),
        # Far from it once, by more than four standard errors.
        ({("W", 5, 5, 4): 0.35}, Verdict.FAILS),
        # No single one is far, but all are above, so that their mean may be off by more than is allowed.
        (dict(zip([("W", n, T, d) for n, T in SIZES for d in DIMENSIONS], ABOVE, strict=True)), Verdict.OPEN),
    ],
)
def test_probabilities_have_to_be_close_to_the_independent_ones(changes, verdict):
    assert judged(changes)[1]["independent"].verdict is verdict


def test_runs_of_other_sizes_are_not_compared():
    made = [run(weights, 7, 5, d, 0.5) for weights in ("W", "KQ") for d in DIMENSIONS]
    summaries = claims.summarize({one.attrs["run"]: one for one in made}, KEY)
    found = next(claim for claim in claims.CLAIMS if claim.id.endswith("independent")).judge(summaries)
    assert found.verdict is Verdict.OPEN
    assert "sizes" in found.note


@pytest.mark.parametrize("weights", ["W", "KQ"])
def test_runs_of_one_kind_of_weights_are_an_error(weights):
    missing = "KQ" if weights == "W" else "W"
    with pytest.raises(ValueError, match=f"found none of {missing}"):
        claims.summarize({name: one for name, one in runs().items() if one.attrs["weights"] == weights}, KEY)


@pytest.mark.parametrize("little", [{"seeds": 8}, {"steps": 200}])
def test_little_is_not_decided(little):
    assert {one.verdict for one in judged(**little)[1].values()} == {Verdict.OPEN}


def test_a_run_that_has_not_saturated_counts_as_not_optimal():
    summaries, found = judged(unsaturated=100)
    one = summaries["W"].sel(run="W n=5 T=5 d=4")
    assert one["global"] == 0.5
    assert one["global_low"] < 0.5 < one["global_high"]
    assert found["d"].counts["W n=5 T=5 d=4"] == {"attempted": 1000, "kept": 900, "diverged": 0, "ambiguous": 100}


def test_differences_are_counted_in_the_standard_errors_of_both_runs():
    # 0.6 of 1000 and 0.5 of 100, each with a hit and a miss more: 601 of 1002 and 51 of 102.
    expected = np.sqrt(0.5998 * 0.4002 / 1002 + 0.25 / 102)
    np.testing.assert_allclose(independent.difference(0.6, 1000, 0.5, 100), (0.0998, expected), rtol=1e-3)
    difference, error = independent.difference(1.0, 50, 1.0, 100)
    assert abs(difference / error) < 1
    assert [independent.by_chance(count) for count in (1, 20, 30)] == [0, 3, 3]


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
    found = measure(record)
    assert found["saturated"].values.tolist() == [True, True, False]
    assert found["globally"].values.tolist() == [True, False, True]
    assert {name: found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous")} == {
        "attempted": 4,
        "kept": 2,
        "diverged": 1,
        "ambiguous": 1,
    }
    assert found.attrs["run"] == f"W n={instances.n} T={instances.T} d={instances.d}"


def drawn_by(summaries):
    """The panels of the figure by the weights and the size that they vary."""
    drawn = figure.draw(summaries)
    return drawn, dict(zip([(w, along) for w in summaries for along in "nT"], drawn.axes, strict=True))


def test_the_figure_draws_every_run_and_the_independent_one():
    summaries, found = judged()
    drawn, panels = drawn_by(summaries)
    for (weights, along), panel in panels.items():
        one = summaries[weights]
        part = one.isel(run=(one["T" if along == "n" else "n"] == 5).values)
        lines = [line for line in panel.lines if np.size(line.get_xdata()) > 1]
        np.testing.assert_array_equal(
            [line.get_ydata() for line in lines if line.get_marker() != "D"], part["global"].values.reshape(2, -1)
        )
        (marks,) = (line for line in lines if line.get_marker() == "D")
        assert marks.get_label() == "independent run of the protocol, 100 seeds"
        expected = [found["independent"].expected[run] for run in part["run"].values]
        np.testing.assert_array_equal(marks.get_ydata(), expected)
    assert "9,000 seeds, all kept." in drawn.get_supxlabel()
    assert "1 of 18 differences are larger; chance gives up to 2 (95 % of cases)" in drawn.get_supxlabel()


def test_the_figure_says_where_the_probability_falls_and_rises():
    _, panels = drawn_by(judged()[0])
    assert panels["W", "n"].get_title() == ("(a) training $W$, $T = 5$: lower with more inputs $n$, from $d = 4$ to 20")
    # At 0.62 and 0.63 of 1000 the intervals overlap.
    _, panels = drawn_by(judged({("KQ", 5, 10, 4): 0.62})[0])
    title = panels["KQ", "T"].get_title()
    assert title == "(d) training $(K, Q)$, $n = 5$: lower with more tokens $T$; not shown at $d = 4$"
    _, panels = drawn_by(judged({("KQ", 10, 5, 4): 0.85, ("KQ", 10, 5, 10): 0.95})[0])
    assert panels["KQ", "n"].get_title().endswith('refutes "lower with more inputs $n$": it rises at $d = 4$, 10')
    only = {name: one for name, one in runs(seeds=1000).items() if (one.attrs["n"], one.attrs["T"]) == (5, 5)}
    drawn, panels = drawn_by(claims.summarize(only, KEY))
    assert panels["W", "T"].get_title().endswith("a single number of tokens $T$")
    assert "of 6 differences" in drawn.get_supxlabel()
