"""Where descent stays: starts that are recorded, how runs are judged, verdicts both ways, and what the figure draws."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, descent, heads, initial, losses, metrics, svm, tokens
from jaxattn.experiments.local.local_directions import claims, examples, figure
from jaxattn.experiments.local.local_directions.measure import measure
from jaxattn.experiments.local.local_directions.record import Along, Directions
from jaxattn.records import load
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording
from tests.instances import drawn_lines

KEY = jax.random.key(0)
RADII = examples.RADII
RULE = descent.normalized_gd(0.1, 0.0, 0.0)


LAW = data.Spheres(n=2, T=3, d=[3, 2])


def setting(**changes):
    fields = {
        "law": LAW,
        "initial": Along(RADII.tolist()),
        "optimizer": descent.normalized_gd(0.1, 0.0, 0.0),
    }
    fields |= {"loss": losses.logistic}
    fields |= {"head": heads.linear, "seeds": 3, "key": 1, "steps": 2000}
    return Directions(**(fields | changes))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("directions") / "record.zarr"
    recording.run(setting(), path, {"config": json.dumps({"steps": 2000}), "attempted": 3})
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
    found = measure(record)
    assert {name: found.attrs[name] for name in ("attempted", "kept", "infeasible", "unsolved")} == {
        "attempted": 54,
        "kept": 54,
        "infeasible": 0,
        "unsolved": 0,
    }
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
        setting(initial=initial.free)
    with pytest.raises(TypeError, match="data: expected a law of several dimensions"):
        setting(law=data.three_tokens)


def test_starts_whose_run_is_not_finite_are_counted_and_not_measured(record):
    W = record["W"].values.copy()
    W[0, 1, 2, 1, 0, 0] = np.nan
    W[2, 0, 8] = np.inf
    found = measure(record.assign(W=(record["W"].dims, W)))
    expected = {"attempted": 54, "kept": 52, "diverged": 2, "infeasible": 0, "unsolved": 0}
    assert {name: found.attrs[name] for name in expected} == expected
    assert found.sizes["start"] == 52
    assert np.isfinite(found["correlation"]).all()


def summarized(**more):
    """The estimates of the example with these numbers, and the judgement on it."""
    summaries = claims.summarize({"all starts": examples.measured(**more)}, KEY)
    (claim,) = claims.CLAIMS
    assert claim.id == "local-directions:exactly"
    return summaries, claim.judge(summaries)


SPREAD = {"problems": 40}


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"left": (0, 0)}, Verdict.HOLDS),
        ({"left": (40, 1)}, Verdict.CORRECTED),
        ({"left": (40, 4), **SPREAD}, Verdict.CORRECTED),
        # Six of a hundred, all of one problem, may stand for more than one in ten.
        ({"left": (40, 6)}, Verdict.FAILS),
        ({"left": (40, 20)}, Verdict.FAILS),
        ({"left": (40, 20), **SPREAD}, Verdict.FAILS),
        ({"left": (400, 200), "local": 1000}, Verdict.FAILS),
        # The share left rises with R, falls by too little to tell, or stays.
        ({"left": (40, 60), "local": 1000, "others": 3000, "problems": 400}, Verdict.FAILS),
        ({"left": (41, 40), "local": 1000, "others": 3000, "problems": 400}, Verdict.CORRECTED),
        ({"left": (4, 6)}, Verdict.FAILS),
        ({"left": (1, 20), **SPREAD}, Verdict.FAILS),
        ({"wrongly": 1}, Verdict.FAILS),
        ({"wrongly": 1, "left": (40, 2), **SPREAD}, Verdict.FAILS),
        ({"steps": 200}, Verdict.OPEN),
        ({"local": 4, "left": (2, 0)}, Verdict.OPEN),
        ({"problems": 7}, Verdict.OPEN),
    ],
)
def test_verdicts_follow_the_exceptions(more, verdict):
    assert summarized(**more)[1].verdict is verdict


def test_one_radius_alone_is_judged_too():
    one = examples.measured(left=(40, 2), problems=40).isel(radius=[1])
    assert claims.CLAIMS[0].judge(claims.summarize({"all starts": one}, KEY)).verdict is Verdict.CORRECTED


def test_datasets_that_contradict_themselves_are_refused():
    one = examples.measured()
    with pytest.raises(ValueError, match=r"^stayed: expected a correlation above 0.99, found 160 runs"):
        claims.summarize({"all starts": one.assign(correlation=0.98 + 0 * one["correlation"])}, KEY)
    with pytest.raises(ValueError, match=r"^locally: expected the choices whose lead is positive, found 400"):
        claims.summarize({"all starts": one.assign(gap=-one["gap"])}, KEY)
    with pytest.raises(ValueError, match=r"^local-directions: expected one dataset, found \[\]"):
        claims.summarize({}, KEY)


def test_shares_are_counted_over_all_dimensions():
    summaries, found = summarized(left=(40, 6))
    assert found.measured["local, share left, R = 10"] == 0.4
    assert found.measured["local, share left, R = 100"] == 0.06
    assert found.measured["not local, share left, R = 100"] == 1
    low, high = found.interval["local, share left, R = 100"]
    # The six are of one problem: they count as little more than one.
    assert 0 <= low < 0.06 < 0.13 < high < 0.25
    assert found.counts == {"all starts": {"attempted": 414, "kept": 400, "infeasible": 12, "unsolved": 2}}
    assert summaries["all starts"]["starts"].values.tolist() == [300, 100]
    assert "0.5 where descent left and 5.0 where it stayed" in found.note
    assert "0 runs stayed at tokens that are not locally optimal" in found.note


def test_the_correction_says_how_the_share_left_falls():
    _, found = summarized(left=(40, 2), **SPREAD)
    assert "40.0% of the locally optimal choices at R = 10, and 2.0% at R = 100" in found.note
    assert "Correction" not in summarized()[1].note


def test_the_figure_draws_both_kinds_of_starts():
    summaries, _ = summarized(left=(40, 6))
    drawn = figure.draw(summaries)
    over_lead, over_radius, over_slack = drawn.axes
    negative, positive = drawn_lines(over_lead)[:2]
    assert (negative[0] < 0).all()
    assert (negative[1] == 0).all()
    assert (positive[0] > 0).all()
    # Groups of equally many of the 100 locally optimal choices, of which 94 stay.
    assert np.mean(positive[1]) == pytest.approx(0.94, abs=0.02)
    curves = [y for _, y in drawn_lines(over_radius)]
    np.testing.assert_allclose(curves, [[0.6, 0.94], [0, 0]])
    slack, stay = drawn_lines(over_slack)[0]
    assert (np.diff(slack) >= 0).all()
    (summary,) = summaries.values()
    local = summary.isel(start=summary["locally"].values)
    assert np.mean(stay) == pytest.approx(local["stayed"].values[np.isfinite(local["slack"].values)].mean(), abs=0.05)
    assert "400 of 414 choices kept (excluded: 12 infeasible, 2 unsolved)" in drawn.get_supxlabel()
