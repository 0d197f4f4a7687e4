"""Types of convergence: how runs are classified, verdicts both ways, and what the figure draws."""

import json

import jax
import numpy as np
import pytest
import xarray

from jaxattn import svm, tokens
from jaxattn.experiments.landscape.convergence_types import claims, figure
from jaxattn.experiments.landscape.convergence_types.examples import DIMENSIONS, runs
from jaxattn.experiments.landscape.convergence_types.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests import instances

KEY = jax.random.key(0)


def judged(changes=None, **more):
    summaries = claims.summarize(runs(changes, **more), KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (HOLDS, HOLDS, HOLDS)),
        ({("KQ", 20): {"globally": 120}}, (OPEN, HOLDS, HOLDS)),  # The ends overlap: no rise is shown, nor none.
        ({("KQ", 20): {"globally": 60}}, (FAILS, HOLDS, FAILS)),  # Of 80 with all support 20 are not global.
        ({("KQ", 10): {"globally": 198}}, (FAILS, HOLDS, HOLDS)),
        ({("W", 4): {"locally": 199}}, (HOLDS, FAILS, HOLDS)),  # Not all; whether nearly all, by the interval, is open.
        ({("W", 4): {"locally": 193}}, (HOLDS, FAILS, HOLDS)),
        ({("W", 4): {"locally": 190}}, (HOLDS, FAILS, HOLDS)),
        ({("KQ", 4): {"locally": 190, "own": 200}}, (HOLDS, CORRECTED, HOLDS)),
        ({("KQ", 4): {"locally": 190, "own": 199}}, (HOLDS, FAILS, HOLDS)),
        ({("KQ", 4): {"locally": 190, "own": 190}}, (HOLDS, FAILS, HOLDS)),
        ({("KQ", 4): {"locally": 200, "own": 190}}, (HOLDS, HOLDS, HOLDS)),
        ({("W", 20): {"support": 16}}, (HOLDS, HOLDS, FAILS)),
        ({("W", 10): {"support": 18}, ("W", 20): {"support": 20}}, (HOLDS, HOLDS, OPEN)),  # The ends overlap.
        ({("W", 20): {"support": 2}}, (HOLDS, HOLDS, FAILS)),
        ({("W", 20): {"support": 181}}, (HOLDS, HOLDS, FAILS)),  # One is local, all support, and not global.
    ],
)
def test_verdicts_follow_the_shares(changes, verdicts):
    _, found = judged(changes)
    assert tuple(found[name].verdict for name in ("global", "local", "all-support")) == verdicts


def test_of_many_seeds_few_may_stand_elsewhere():
    changes = {
        (weights, d): {"globally": 500 + 20 * d, "locally": 1000, "support": 20 * d}
        for weights in ("W", "KQ")
        for d in DIMENSIONS
    }
    for elsewhere, verdict in ((0, HOLDS), (1, CORRECTED), (10, CORRECTED), (15, FAILS), (31, FAILS)):
        changes["W", 4] |= {"locally": 1000 - elsewhere}
        found = judged(changes, seeds=1000)[1]["local"]
        assert found.verdict is verdict
        # Said where the correction holds, or where that is open, as for 15 runs.
        assert (f"{elsewhere} of 6000 saturated runs are not local" in found.note) == (elsewhere in (1, 10, 15))


@pytest.mark.parametrize("little", [{"unsaturated": 185}, {"steps": 200}])
def test_little_is_not_decided(little):
    assert {one.verdict for one in judged(**little)[1].values()} == {OPEN}


def test_types_are_counted_once_each_and_runs_that_selected_nothing_apart():
    summaries, found = judged({("W", 4): {"globally": 50, "locally": 120}}, unsaturated=20)
    one = summaries["W"].sel(d=4)
    shares = dict(zip(one["type"].values.tolist(), one["share"].values.tolist(), strict=True))
    assert shares == pytest.approx({"global": 0.25, "local": 0.35, "neither": 0.3, "unsaturated": 0.1})
    assert one["all_support"] == 0.08
    label = "n=5 T=5 d=4, locally optimal by the"
    assert found["local"].measured[f"W {label} Frobenius solution"] == pytest.approx(120 / 180)
    assert found["local"].measured[f"KQ {label} nuclear solution"] == 1
    assert f"W {label} nuclear solution" not in found["local"].measured
    expected = {"attempted": 201, "kept": 180, "diverged": 0, "ambiguous": 20, "infeasible": 0, "unsolved": 1}
    assert found["global"].counts["W n=5 T=5 d=4"] == expected


@pytest.mark.parametrize("kept", [0, 200])
def test_where_nothing_saturated_nothing_is_decided(kept):
    made = {name: one.assign_attrs(kept=kept) for name, one in runs(unsaturated=200).items()}
    summaries = claims.summarize(made, KEY)
    found = {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}
    assert {one.verdict for one in found.values()} == {OPEN}
    assert found["local"].measured == {}
    assert np.isnan(summaries["W"]["by_own"]).all()


@pytest.mark.parametrize("weights", ["W", "KQ"])
def test_runs_of_one_kind_of_weights_are_an_error(weights):
    with pytest.raises(ValueError, match="found none of"):
        claims.summarize({name: one for name, one in runs().items() if one.attrs["weights"] == weights}, KEY)


@pytest.mark.slow
def test_records_are_classified_by_the_solution_that_selects_their_tokens():
    problems = instances.problems(6)
    alpha = np.array(jax.random.randint(jax.random.key(1), (6, instances.n), 0, instances.T))
    alpha[0] = tokens.optimal(instances.lane(problems, 0))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints)
    assert (solved.status == Status.OPTIMAL).all()
    W = solved.W * np.array([40.0, 40.0, 40.0, 40.0, 1.0, np.nan])[:, None, None]
    fields = {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    variables = {name: (("seed", *dims), np.asarray(getattr(problems, name))) for name, dims in fields.items()}
    variables["W"] = (("seed", "feature", "e"), np.asarray(W))
    record = xarray.Dataset(variables, {"seed": np.arange(6)}, {"config": json.dumps({"steps": 1500})})
    found = measure(record)
    assert found["saturated"].values.tolist() == [True] * 4 + [False]
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(5):
        inputs = np.arange(instances.n)
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = scores[i][inputs, alpha[i]], scores[i][inputs[:, None], others]
        active = np.abs(margins[i] - 1) < 1e-6
        one = found.isel(seed=i)
        assert one["globally"] == (own[:, None] > rest).all()
        assert one["locally"] == ((own[:, None] > rest) | ~active).all()
        assert one["all_support"] == active.all()
        assert one["nearest"] == margins[i][~active].min()
    np.testing.assert_array_equal(found["locally_own"], found["locally"])  # W tends to the Frobenius solution.
    counted = {name: found.attrs[name] for name in ("attempted", "kept", "diverged", "ambiguous", "unsolved")}
    assert counted == {"attempted": 6, "kept": 4, "diverged": 1, "ambiguous": 1, "unsolved": 0}


@pytest.mark.slow
def test_factors_are_local_by_the_neighbours_of_the_nuclear_solution_too():
    problems = instances.problems(6)
    alpha = np.asarray(jax.random.randint(jax.random.key(3), (6, instances.n), 0, instances.T))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    solved = svm.solve_batch(constraints, norm="nuclear")
    assert (solved.status == Status.OPTIMAL).all()
    fields = {"X": ("input", "token", "feature"), "Z": ("input", "e"), "Y": ("input",), "v": ("feature",)}
    variables = {name: (("seed", *dims), np.asarray(getattr(problems, name))) for name, dims in fields.items()}
    variables["K"] = (("seed", "feature", "width"), 40 * np.asarray(solved.W))
    variables["Q"] = (("seed", "e", "width"), np.tile(np.eye(instances.d), (6, 1, 1)))
    record = xarray.Dataset(variables, {"seed": np.arange(6)}, {"config": json.dumps({"steps": 1500})})
    found = measure(record)
    assert found.attrs["kept"] == 6
    margins = np.asarray(jax.vmap(svm.margins)(constraints, solved.W))
    scores = np.asarray(jax.vmap(tokens.scores)(problems))
    for i in range(6):
        others = np.array([[t for t in range(instances.T) if t != own] for own in alpha[i]])
        own, rest = (np.take_along_axis(scores[i], which, axis=1) for which in (alpha[i][:, None], others))
        assert found["locally_own"][i] == ((own > rest) | (np.abs(margins[i] - 1) > 1e-6)).all()


def drawn_shares(panel):
    """The shares of each curve of a panel, and the dimensions of its open triangles."""
    curves = [line for line in panel.lines if len(line.get_xdata()) == len(DIMENSIONS) and line.get_marker() != "v"]
    none = [np.round(line.get_xdata()).tolist() for line in panel.lines if line.get_marker() == "v"]
    return [np.asarray(line.get_ydata()) for line in curves], none


def test_the_figure_draws_what_is_not_global_not_local_and_all_support():
    summaries, _ = judged({("W", 4): {"globally": 50, "locally": 120}, ("KQ", 10): {"locally": 190}}, unsaturated=20)
    drawn = figure.draw(summaries)
    a, b, c = drawn.axes
    of_a, none_a = drawn_shares(a)
    np.testing.assert_allclose(of_a, [1 - one["share"].sel(type="global") for one in summaries.values()])
    assert none_a == [[], []]
    # Of 180 saturated seeds 60 are not local in one dimension; zeros are at half of one of 200 seeds.
    of_b, none_b = drawn_shares(b)
    floor = 0.5 / 200
    np.testing.assert_allclose(of_b, [[60 / 180, floor, floor], [floor] * 3, [floor] * 3])
    assert none_b == [[10, 19], [4, 10, 21], [4, 10, 21]]
    of_c, none_c = drawn_shares(c)
    np.testing.assert_allclose(of_c, [one["all_support"] for one in summaries.values()])
    assert none_c == [[], []]
    assert a.get_title() == (r"(a) not global: falls from $75\,\%$ to $10\,\%$ ($W$), $42\,\%$ to $10\,\%$ ($KQ^\top$)")
    assert b.get_title() == '(b) "all are local" refuted: 60 of 1,080 runs are not'
    assert c.get_title() == "(c) all tokens support vectors: none of these is local only"
    assert "540 of 603 seeds kept (excluded: 60 ambiguous, 3 unsolved)" in drawn.get_supxlabel()


def test_the_figures_titles_follow_the_shares():
    summaries, _ = judged({("W", 20): {"support": 181}, ("KQ", 4): {"locally": 190, "own": 200}})
    a, b, c = figure.draw(summaries).axes
    assert b.get_title() == "(b) all 1,200 runs are local by their own SVM"
    np.testing.assert_allclose(drawn_shares(b)[0][2], [10 / 200, 0.5 / 200, 0.5 / 200])
    assert c.get_title() == "(c) all tokens support vectors: 1 of these local only, refuted"
    rising = figure.draw(judged({("W", 20): {"globally": 60}})[0]).axes[0]
    assert "falls" not in rising.get_title()
    assert "falls" in a.get_title()


def test_the_figure_draws_runs_that_selected_nothing():
    summaries = claims.summarize(runs(unsaturated=200), KEY)
    a, b, _ = figure.draw(summaries).axes
    np.testing.assert_array_equal(drawn_shares(a)[0], np.ones((2, 3)))
    assert np.isnan(drawn_shares(b)[0]).all()
    assert b.get_title() == "(b) no run is saturated"
