"""Two inputs that are all support vectors: synthetic starts, and what is measured of a record."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxattn import descent, losses, problem
from jaxattn.experiments.landscape import all_support
from jaxattn.study.settings import schedule
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded

VERDICTS = {"all-support:any": "does not hold"}
STEPS = np.array([1, 10, 100, 1000, 10_000])
GRAM = np.array([[5.0, -2.0], [-2.0, 1.0]])


def measured():
    """A third of the starts is in front; of the others every second leaves its first input behind."""
    return {"plain": run(0.005), "exact direction": run(0.1)}


def run(step_size, seeds=240):
    seed = np.arange(seeds)
    front, behind = seed % 3 == 0, seed % 3 == 1
    grown = np.log(STEPS) * (1 + 0.01 * np.sin(seed))[:, None]
    start = np.stack([np.where(front, 1.0, -3.0), np.full(seeds, 3.0)], axis=1)
    first = np.where(behind[:, None], -3 - 2 * grown, start[:, :1] + 2 * grown)
    margin = np.stack([first, 3 + grown], axis=2)
    pull_start = np.stack([np.where(behind, -9.0, -2.0), np.full(seeds, -3.0)], axis=1)
    return synthetic(
        seeds,
        {"optimizer.step_size": step_size, "steps": int(STEPS[-1])},
        {"snapshot": STEPS},
        start=(("seed", "coordinate"), start),
        margin_start=(("seed", "input"), start),
        margin=(("seed", "snapshot", "input"), margin),
        pull_start=(("seed", "input"), pull_start),
        pull=(("seed", "snapshot", "input"), -np.abs(margin)),
        off=0.1 / (1 + grown) ** 2,
        gram=(("seed", "input", "second"), np.tile(GRAM, (seeds, 1, 1))),
        bound=177.0,
    )


def test_a_start_is_behind_in_front_or_foretold_by_its_margins_and_pulls():
    summary = all_support.estimate(run(0.1), jax.random.key(0))
    assert [int(summary[name]) for name in ("left", "ready", "failed", "tested")] == [80, 80, 0, 160]
    assert float(summary["predicted"]) == 1.0
    np.testing.assert_allclose(summary["exponent"], -2.0, atol=0.05)
    # With pulls of equal size the input behind catches up, so that the law is wrong where it does not.
    equal = run(0.1).assign(pull_start=(("seed", "input"), np.zeros((240, 2))))
    np.testing.assert_allclose(all_support.estimate(equal, jax.random.key(0))["predicted"], 0.5)
    # A margin that is negative but grows is not left behind.
    growing = run(0.1)
    growing["margin"] = -1 / growing["snapshot"] - 0 * growing["margin"]
    assert int(all_support.estimate(growing, jax.random.key(0))["left"]) == 0


def test_a_start_outside_the_square_is_refused():
    with pytest.raises(ValueError, match="reach: expected a positive"):
        all_support.in_square(jax.random.key(0), 2, reach=0.0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    kept = schedule.Logarithmically(2)
    law, start = all_support.opposed, partial(all_support.in_square, reach=4.0)
    return recorded(path, law, start, optimizer=descent.gd(0.5), seeds=5, steps=100, snapshots=kept)


def test_pulls_are_the_parts_of_the_gradient(record):
    found = all_support.measure(record)
    one = problem.of_arrays({name: record[name].values[0] for name in ("X", "Z", "Y", "v")})
    gradient = jax.grad(losses.risk)(record["W_initial"].values[0], one)
    rows = np.array([[-2.0, 1.0], [1.0, 0.0]])
    pulls = np.exp(found["pull_start"].values[0]) / 2
    np.testing.assert_allclose(gradient[:, 0], -pulls @ rows, rtol=1e-6)
    np.testing.assert_allclose(found["margin_start"].values, found["start"].values @ rows.T)
    np.testing.assert_allclose(found["gram"].values[0], GRAM)
