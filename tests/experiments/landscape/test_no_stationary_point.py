"""The lemma on stationary points: its bound, the angle that is measured, the instance with a minimum, the verdicts."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, losses, metrics, records, svm, tokens
from jaxattn.experiments.landscape.no_stationary_point import claims as stationary_point
from jaxattn.experiments.landscape.no_stationary_point import figure, trap
from jaxattn.study.claims import Verdict
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import landscape, recording
from tests.instances import T, d, lane, n

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
    return [(record, stationary_point.measure(record)) for record in found]


@pytest.mark.slow
def test_the_cosine_is_that_of_the_gradient(looked):
    for record, one in looked:
        found = optimum.optimum(record)
        own, W_mm = lane(found.problems, 1), jnp.asarray(found.W[1])
        towards = W_mm / metrics.norm(W_mm)
        drawn = [
            stationary_point._drawn(jnp.asarray(words), towards)  # pyright: ignore[reportPrivateUsage]
            for words in record["draw_keys"].values[1, :40]
        ]
        lengths = np.array([metrics.norm(W) for W in drawn])
        assert 0.01 <= lengths.min() < 0.1 < 10 < lengths.max() <= 100
        # Where the gradient itself has not lost its digits.
        cosines = [float(metrics.correlation(-SLOPE(W, own), W_mm)) for W in drawn if metrics.norm(W) < 10]
        assert float(one["least"][1]) <= min(cosines) + 1e-9
        assert int(one["histogram"][1].sum()) == 200
        words = jnp.asarray(record["draw_keys"].values[1, :40])
        at, _ = stationary_point._looked_at(words, W_mm, jnp.ones(d), own)  # pyright: ignore[reportPrivateUsage]
        np.testing.assert_allclose(
            [c for c, W in zip(at, drawn, strict=True) if metrics.norm(W) < 10], cosines, rtol=1e-6
        )


def test_with_equal_scores_no_cosine_is_below_the_proofs_bound_and_without_some_are(looked):
    (_, equal), (_, free) = looked
    assert np.all(equal["least"] >= equal["bound"] * (1 - 1e-9))
    assert np.any(free["least"] < free["bound"])


def test_with_separable_labelled_queries_no_gradient_vanishes_whatever_the_scores(looked):
    for _, one in looked:
        assert np.all(one["readout"] > 0)


def test_a_draw_is_the_same_however_many_there_are(tmp_path):
    few, many = (recorded(tmp_path, 1.0, draws=draws) for draws in (3, 7))
    np.testing.assert_array_equal(few["draw_keys"], many["draw_keys"][:, :3])
    np.testing.assert_array_equal(few["X"], many["X"])
    assert len(np.unique(many["draw_keys"].values.reshape(35, -1), axis=0)) == 35


@pytest.mark.parametrize(("field", "value"), [("seeds", 0), ("draws", 0)])
def test_an_empty_landscape_is_refused(field, value):
    sizes = {"seeds": 1, "draws": 1} | {field: value}
    with pytest.raises(ValueError, match=f"{field}: expected at least 1, found 0"):
        landscape.Landscape(data.three_tokens, key=0, **sizes)
    with pytest.raises(TypeError, match="data: expected a law of one dimension"):
        landscape.Landscape(data.Spheres(2, 2, [2]), key=0, seeds=1, draws=1)  # pyright: ignore[reportArgumentType]


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
    run = descent.train(start, one, optimizer=descent.gd(5.0), steps=5000)
    np.testing.assert_allclose(jnp.asarray(run.weights)[:, 0], [float(free["place"][low]), 0.0], atol=1e-6)
    # While the risk there is far above that of the solution.
    solution = svm.solve(svm.token_constraints(one, alpha)).W
    assert losses.risk(run.weights, one) > losses.risk(10 * solution, one) + 0.1


def made(spread, least, bound=0.1, readout=0.01, seeds=24, draws=10_000):
    noise = np.random.default_rng(0).random(seeds)
    variables = {
        "least": (("seed",), least + 0.01 * noise),
        "negative": (("seed",), np.full(seeds, 0.1 * (least < 0))),
        "histogram": (("seed", "bin"), np.ones((seeds, 100), int)),
        "bound": (("seed",), np.full(seeds, bound)),
        "readout": (("seed",), readout + noise),
    }
    attrs = {"run": f"spread {spread}", "spread": spread, "draws": draws, "attempted": seeds, "kept": seeds}
    bins = {"seed": np.arange(seeds), "bin": np.linspace(-0.99, 0.99, 100)}
    return xarray.Dataset(variables, bins, attrs | {"infeasible": 0, "unsolved": 0})


def judged(equal=None, free=None):
    runs = (equal or made(0.0, 0.12), free or made(1.0, -0.2))
    summaries, claims = stationary_point.summarize({one.attrs["run"]: one for one in runs}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "equal", Verdict.HOLDS),
        ({"equal": made(0.0, -0.12)}, "equal", Verdict.FAILS),
        ({"equal": made(0.0, 0.05)}, "equal", Verdict.FAILS),  # Positive, but below the proof's bound.
        ({"equal": made(0.0, 0.12, draws=100)}, "equal", Verdict.OPEN),
        ({}, "needed", Verdict.HOLDS),
        ({"free": made(1.0, 0.2)}, "needed", Verdict.FAILS),
        ({"free": made(1.0, -0.2, seeds=10)}, "needed", Verdict.OPEN),
        ({}, "finite", Verdict.CORRECTED),
        ({"free": made(1.0, -0.2, readout=-0.5)}, "finite", Verdict.HOLDS),
    ],
)
def test_verdicts_follow_from_the_smallest_cosines(changed, name, verdict):
    assert judged(**changed)[1][name].verdict is verdict


def test_the_figure_draws_both_runs_and_both_landscapes():
    drawn = figure.draw(judged()[0])
    assert len(drawn.axes) == 4
    points = [np.asarray(one.get_offsets()) for one in drawn.axes[1].collections]
    np.testing.assert_allclose(points[0][:, 1], made(0.0, 0.12)["least"])
    labels = drawn.axes[2].get_legend_handles_labels()[1]
    assert labels == ["local minimum", "saddle"]
    assert "equal scores: 24 of 24 problems kept" in drawn.get_supxlabel()
