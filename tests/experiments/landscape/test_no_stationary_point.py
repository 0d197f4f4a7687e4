"""The lemma on stationary points: its bound, the angle that is measured, the instance with a minimum, the verdicts."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, losses, metrics, records, svm, tokens
from jaxattn.experiments.landscape.no_stationary_point import claims, figure, measure, trap
from jaxattn.experiments.landscape.no_stationary_point.examples import run, runs
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import landscape, recording
from tests.instances import T, d, drawn_lines, lane, n

KEY = jax.random.key(0)
SLOPE = jax.grad(losses.risk)


def recorded(folder, spread, seeds=5, draws=200):
    law = partial(data.spread_scores, n=n, T=T, d=d, spread=spread)
    setting = landscape.Landscape(law, seeds=seeds, key=5, draws=draws)
    recording.run(setting, folder / f"{spread}-{draws}.zarr", {"config": json.dumps({"data": {"spread": spread}})})
    return records.load(folder / f"{spread}-{draws}.zarr")


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = [recorded(folder, spread) for spread in (0.0, 1.0)]
    return [(record, measure.measure(record)) for record in found]


@pytest.mark.slow
def test_the_cosine_is_that_of_the_gradient(looked):
    for record, one in looked:
        found = optimum.optimum(record)
        own, W_mm = lane(found.problems, 1), jnp.asarray(found.W[1])
        towards = W_mm / metrics.norm(W_mm)
        drawn = [
            measure._drawn(jnp.asarray(words), towards)  # pyright: ignore[reportPrivateUsage]
            for words in record["draw_keys"].values[1, :40]
        ]
        lengths = np.array([metrics.norm(W) for W in drawn])
        assert 0.01 <= lengths.min() < 0.1 < 10 < lengths.max() <= 100
        # Where the gradient itself has not lost its digits.
        cosines = [float(metrics.correlation(-SLOPE(W, own), W_mm)) for W in drawn if metrics.norm(W) < 10]
        assert float(one["least"][1]) <= min(cosines) + 1e-9
        assert int(one["histogram"][1].sum()) == 200
        words = jnp.asarray(record["draw_keys"].values[1, :40])
        at, _ = measure._looked_at(words, W_mm, jnp.ones(d), own)  # pyright: ignore[reportPrivateUsage]
        np.testing.assert_allclose(
            [c for c, W in zip(at, drawn, strict=True) if metrics.norm(W) < 10], cosines, rtol=1e-6
        )


@pytest.mark.slow
def test_with_equal_scores_no_cosine_is_below_the_proofs_bound_and_without_some_are(looked):
    (_, equal), (_, free) = looked
    assert np.all(equal["least"] >= equal["bound"] * (1 - 1e-9))
    assert np.any(free["least"] < free["bound"])


def test_with_separable_labelled_queries_no_gradient_vanishes_whatever_the_scores(looked):
    for _, one in looked:
        assert np.all(one["readout"] > 0)


def test_a_measured_dataset_holds_the_landscape_and_is_read_back_as_it_was(looked, tmp_path):
    for (_, one), score in zip(looked, (0.0, trap.SCORE), strict=True):
        of_trap = trap.landscape(score)
        for name, variable in of_trap.data_vars.items():
            xarray.testing.assert_identical(one[f"trap_{name}"].rename(name), variable)
        # With equal scores there is no stationary point: an axis of length 0.
        assert one.sizes["point"] == (2 if score else 0)
        assert not_a_number({"one": one}) == ""
        records.save_dataset(tmp_path / f"{score}.zarr", one)
        xarray.testing.assert_identical(records.load_dataset(tmp_path / f"{score}.zarr"), one)


def test_measured_datasets_are_judged_and_drawn(looked):
    summaries, found = judged({one.attrs["run"]: one for _, one in looked})
    assert set(summaries) == {"equal", "free", "trap", "trap, equal"}
    # Five problems and two hundred weights are too few.
    assert {one.verdict for one in found.values()} == {Verdict.OPEN}
    xarray.testing.assert_equal(summaries["trap"], trap.landscape(trap.SCORE))
    drawn = figure.draw(summaries)
    assert [named(axes) for axes in drawn.axes[2:4]] == [["local minimum", "saddle"], []]
    assert [axes.get_title().partition(": ")[2] for axes in drawn.axes[2:4]] == ["1 local minimum", "no local minima"]


@pytest.mark.slow
def test_the_instance_has_a_local_minimum_that_holds_descent_and_none_with_equal_scores():
    free, equal = trap.landscape(1.8), trap.landscape(0.0)
    assert equal.sizes["point"] == 0
    assert float(equal["alignment"].min()) > 0
    assert free.sizes["point"] == 2
    low = int(np.argmax(free["least"].values))
    assert float(free["least"][low]) > 0
    assert float(free["gradient"][low]) < 1e-12
    one = trap.problem(1.8)
    alpha = tokens.optimal(one)
    assert svm.Status(int(svm.solve(svm.token_constraints(one, alpha)).status)) is svm.Status.OPTIMAL
    start = jnp.array([[float(free["place"][low]) + 0.3, 0.0], [0.2, 0.0]])
    trained = descent.train(start, one, optimizer=descent.gd(5.0), steps=5000)
    np.testing.assert_allclose(jnp.asarray(trained.weights)[:, 0], [float(free["place"][low]), 0.0], atol=1e-6)
    # While the risk there is far above that of the solution.
    solution = svm.solve(svm.token_constraints(one, alpha)).W
    assert losses.risk(trained.weights, one) > losses.risk(10 * solution, one) + 0.1


def judged(datasets):
    summaries = claims.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "equal", Verdict.HOLDS),
        ({"equal": {"least": -0.12}}, "equal", Verdict.FAILS),
        ({"equal": {"least": 0.05}}, "equal", Verdict.FAILS),  # Positive, but below the proof's bound.
        ({"equal": {"bound": 0.12}}, "equal", Verdict.HOLDS),
        ({"equal": {"bound": 0.121}}, "equal", Verdict.FAILS),
        ({"equal": {"draws": 100}}, "equal", Verdict.OPEN),
        ({"equal": {"draws": 1000}}, "equal", Verdict.HOLDS),
        ({"equal": {"seeds": 19}}, "equal", Verdict.OPEN),
        ({}, "needed", Verdict.HOLDS),
        ({"free": {"least": 0.2}}, "needed", Verdict.FAILS),
        ({"free": {"least": -0.005}}, "needed", Verdict.HOLDS),  # In some problems, not in all.
        ({"free": {"least": 0.001}}, "needed", Verdict.FAILS),
        ({"free": {"seeds": 10}}, "needed", Verdict.OPEN),
        ({}, "finite", Verdict.CORRECTED),
        ({"free": {"readout": -0.5}}, "finite", Verdict.HOLDS),
        ({"free": {"bends": (-0.004, -0.002)}}, "finite", Verdict.FAILS),
        ({"free": {"bends": (1e-7,)}}, "finite", Verdict.FAILS),
        ({"free": {"bends": (1e-5,)}}, "finite", Verdict.CORRECTED),
        ({"free": {"bends": ()}}, "finite", Verdict.FAILS),
        ({"free": {"gradient": 1e-9}}, "finite", Verdict.FAILS),
        ({"equal": {"bends": (0.004,)}}, "finite", Verdict.FAILS),
        ({"free": {"draws": 100}}, "finite", Verdict.OPEN),
    ],
)
def test_verdicts_follow_from_the_smallest_cosines_and_the_landscape(changed, name, verdict):
    assert judged(runs(**changed))[1][name].verdict is verdict


@pytest.mark.parametrize(
    ("left", "names", "note"),
    [
        (1.0, ("equal",), "No run has equal scores."),
        (0.0, ("needed",), "No run has scores as drawn."),
        (0.0, ("finite",), "No run gives free, trap."),
        (1.0, ("finite",), "No run gives trap, equal."),
    ],
)
def test_a_run_that_is_missing_decides_nothing(left, names, note):
    found = judged({name: one for name, one in runs().items() if one.attrs["spread"] == left})[1]
    for name in names:
        assert found[name].verdict is Verdict.OPEN
        assert found[name].note == note


def test_other_scores_and_impossible_landscapes_are_refused():
    with pytest.raises(ValueError, match="no-stationary-point: expected a spread of 0 or 1"):
        judged({"other": run(0.5, 0.1)})
    with pytest.raises(ValueError, match="trap: expected norms of at least 0"):
        judged(runs(free={"gradient": -1.0}))


def test_a_correction_says_the_smallest_cosine():
    found = judged(runs(free={"readout": 0.25}))[1]["finite"]
    assert "The smallest cosine found is 0.25" in found.note
    assert "over 24 problems and 10000 weights each" in found.note


def test_the_figure_draws_both_runs_and_both_landscapes():
    drawn = figure.draw(judged(runs())[0])
    *_, bar = drawn.axes
    assert bar.get_ylabel() == "risk"
    points = [np.asarray(one.get_offsets()) for one in drawn.axes[1].collections]
    np.testing.assert_allclose(points[0][:, 1], run(0.0, 0.12)["least"])
    assert named(drawn.axes[2]) == ["local minimum", "saddle"]
    assert "x 24 problems, all kept." in drawn.get_supxlabel()
    share = drawn_lines(drawn.axes[0])[0].T
    np.testing.assert_allclose(share[[0, 49, 99]], [[-0.98, 0.01], [0, 0.5], [1, 1]], atol=1e-12)


@pytest.mark.parametrize(
    ("least", "shares", "problems"),
    [
        (-0.2, "10 % with scores as drawn", "as drawn: 24 of 24 negative"),
        (0.2, "none with scores as drawn", "as drawn: 0 of 24 negative"),
    ],
)
def test_the_figures_titles_follow_the_signs(least, shares, problems):
    shown, smallest = figure.draw(judged(runs(free={"least": least}))[0]).axes[:2]
    assert shown.get_title().endswith(f"none with equal scores, {shares}")
    assert "24 of 24 above the bound" in smallest.get_title()
    assert problems in smallest.get_title()


def test_descent_is_drawn_from_the_same_points_and_the_risk_falls_along_it():
    for axes in figure.draw(judged(runs())[0]).axes[2:4]:
        paths = drawn_lines(axes, least=5)
        assert len(paths) == 4
        risks = [0.5 - 0.01 * y + 0.001 * (x + 3) ** 2 for x, y in paths]
        assert all(np.all(np.diff(risk) < 1e-4) and risk[-1] < risk[0] for risk in risks)


def named(axes):
    """The names that stand beside the points of a landscape."""
    return [one.get_text() for one in axes.texts if one.get_text()]
