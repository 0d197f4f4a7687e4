"""The lemma on stationary points: synthetic runs, the angle that is measured, and the instance with a minimum."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, losses, metrics, records, svm, tokens
from jaxattn.experiments.landscape.no_stationary_point import trap
from jaxattn.experiments.landscape.no_stationary_point.measure import (
    _drawn,  # pyright: ignore[reportPrivateUsage]
    _looked_at,  # pyright: ignore[reportPrivateUsage]
    measure,
)
from jaxattn.study.claims import not_a_number
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import landscape, recording
from tests.experiments.synthetic import synthetic
from tests.instances import T, d, lane, n

SLOPE = jax.grad(losses.risk)
VERDICTS = {}


def measured():
    """With equal scores all cosines exceed the bound, 0.1; with free ones some are negative, and there is a minimum."""
    return {"equal": run(0.0, least=0.12), "free": run(1.0, least=-0.2, bends=(0.004, -0.002))}


def run(spread, least, bends=()):
    """The smallest cosines of 24 problems, and a landscape with stationary points of these smallest eigenvalues."""
    noise = np.random.default_rng(0).random(24)
    first, second = np.linspace(-7.0, 3.0, 11), np.linspace(-3.0, 3.0, 7)
    x, y = np.meshgrid(first, second)
    bends = np.array(bends, float)
    plane = "second", "first"
    return synthetic(
        24,
        {"data.spread": spread, "draws": 10_000},
        {"bin": np.linspace(-0.99, 0.99, 100), "first": first, "second": second},
        least=least + 0.01 * noise,
        negative=0.1 * (least < 0),
        histogram=(("seed", "bin"), np.ones((24, 100), int)),
        bound=0.1,
        readout=0.01 + noise,
        trap_risk=(plane, 0.5 - 0.01 * y + 0.001 * (x + 3) ** 2),
        trap_alignment=(plane, np.tanh(0.3 * x + 0.5 * y + 1)),
        trap_place=("point", np.linspace(-3.0, 1.0, len(bends))),
        trap_gradient=("point", np.full(len(bends), 1e-17)),
        trap_least=("point", bends),
        trap_largest=("point", np.abs(bends) + 0.01),
        trap_solution=("coordinate", np.array([0.8, 0.6])),
    )


def recorded(folder, spread, seeds=5, draws=200):
    law = partial(data.spread_scores, n=n, T=T, d=d, spread=spread)
    setting = landscape.Landscape(law, seeds=seeds, key=5, draws=draws)
    recording.run(setting, folder / f"{spread}-{draws}.zarr", {})
    return records.load(folder / f"{spread}-{draws}.zarr").assign_attrs({"data.spread": spread})


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = [recorded(folder, spread) for spread in (0.0, 1.0)]
    return [(record, measure(record)) for record in found]


@pytest.mark.slow
def test_the_cosine_is_that_of_the_gradient(looked):
    for record, one in looked:
        found = optimum.optimum(record)
        own, W_mm = lane(found.problems, 1), jnp.asarray(found.W[1])
        towards = W_mm / metrics.norm(W_mm)
        drawn = [_drawn(jnp.asarray(words), towards) for words in record["draw_keys"].values[1, :40]]
        lengths = np.array([metrics.norm(W) for W in drawn])
        assert 0.01 <= lengths.min() < 0.1 < 10 < lengths.max() <= 100
        # Where the gradient itself has not lost its digits.
        cosines = [float(metrics.correlation(-SLOPE(W, own), W_mm)) for W in drawn if metrics.norm(W) < 10]
        assert float(one["least"][1]) <= min(cosines) + 1e-9
        assert int(one["histogram"][1].sum()) == 200
        words = jnp.asarray(record["draw_keys"].values[1, :40])
        at, _ = _looked_at(words, W_mm, jnp.ones(d), own)
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
