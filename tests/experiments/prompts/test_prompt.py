"""Synthetic measurements of trained prompts, and what trained records of p and of W give."""

from functools import partial

import numpy as np
import pytest

from jaxattn import descent, heads, initial, losses
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.prompt import measure
from jaxattn.experiments.prompts.prompt.record import Prompts, prompt, zero
from jaxattn.study.settings import schedule
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded, written

STEPS, SEEDS = np.array([10, 100, 1000, 10_000]), 100
VERDICTS = {}


def measured():
    """The exact direction ends at the solutions; one published run is still far from its own at step 1,000."""
    return {
        "W, keys X, exact direction": run("shared_query", "scale_free_gd"),
        "W, keys X, published rule": run("shared_query", "normalized_gd", off=1e-4),
        "W, keys X A, exact direction": run("keyed", "scale_free_gd"),
        "W, keys X A, published rule": run("keyed", "normalized_gd", off=0.01),
        "p, keys X, exact direction": run("shared_query", "scale_free_gd"),
    }


def run(data, optimizer, off=1e-6):
    """A run with this 1 - cos at the end, whose prompt grows like k."""
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], SEEDS)[:, None]
    return synthetic(
        SEEDS,
        {"data": data, "optimizer": optimizer, "steps": int(STEPS[-1])},
        {"snapshot": STEPS},
        off=spread * np.minimum(off * (STEPS[-1] / STEPS), 1.0),
        margin_ratio=1 - spread * 0.002 * np.ones(len(STEPS)),
        p=(("seed", "snapshot", "feature"), np.ones((SEEDS, 1, 10)) * (0.1 * STEPS)[:, None]),
        remainder=np.full((SEEDS, len(STEPS)), 1e-14),
        solutions=1e-12,
        locally=np.ones(SEEDS, bool),
        globally=np.arange(SEEDS) < 0.4 * SEEDS,
    )


@pytest.mark.slow
def test_training_p_and_training_W_give_the_same_prompts_and_solutions(tmp_path):
    law, rule = partial(shared_query, n=3, T=4, d=5), descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    setting = {"seeds": 4, "steps": 200, "snapshots": schedule.Evenly(50)}
    of_W = measure(recorded(tmp_path / "W", law, initial.free_zero, rule, **setting))
    trained = Prompts(law, zero, rule, losses.logistic, heads.linear, key=1, model=prompt, **setting)
    of_p = measure(written(trained, tmp_path))
    np.testing.assert_allclose(of_W["p"], of_p["p"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(of_W["off"], of_p["off"], atol=1e-10)
    assert float(of_W["remainder"].max()) < 1e-12
    assert float(of_W["solutions"].max()) < 1e-8
    assert of_p.attrs["kept"] == 4
    assert {name: of_p[name].dims for name in of_p} == {name: array.dims for name, array in run("", "").items()}
