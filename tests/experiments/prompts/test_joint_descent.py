"""Synthetic measurements of attention and head trained together, and what a trained record gives."""

from functools import partial

import numpy as np
import pytest

from jaxattn import data, descent, initial, models
from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_descent import measure
from jaxattn.study.settings import schedule
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded

STEPS, SEEDS = np.array([20, 200, 2000, 20_000]), 200
VERDICTS = {
    "joint-descent:support": "does not hold",
    "joint-descent:prompt": "does not hold",
    "joint-descent:weights-offset": "does not hold",
}


def measured():
    """The prompt ends at the offset problem, and far from its token SVM where all inputs are support vectors.

    W ends at the relaxed one.
    """
    return {
        "p and v, tau = 1": run("shared_query", 1.0, relaxed=0.05, offset=1e-5, whole=0.1),
        **{f"W and v, tau = {tau:g}": run("sphere", tau, relaxed=1e-5, offset=0.05) for tau in (1.0, 0.1, 10.0)},
    }


def run(law, tau, relaxed, offset, whole=1e-5):
    """A run in which half of the seeds have an input that is no support vector.

    It has these 1 - cos at the end; `whole` with all problems, which coincide, in the other half of the seeds.
    """
    spread = 1 + 0.1 * np.resize([-1.0, 1.0], SEEDS)[:, None]
    mixed = np.arange(SEEDS) % 4 < 2
    ends = np.where(mixed[:, None], np.array([0.05, relaxed, offset]), whole) * spread
    falling = np.minimum(STEPS[-1] / STEPS, 20.0)
    return synthetic(
        SEEDS,
        {"data": law, "model.model.tau": tau, "steps": int(STEPS[-1])},
        {"problem": np.array(PROBLEMS, object), "snapshot": STEPS},
        off=(("seed", "problem", "snapshot"), ends[:, :, None] * falling),
        off_v=1e-5 * spread * falling,
        margin_ratio=np.full((SEEDS, len(STEPS)), 0.7),
        support=(("seed", "input"), ~mixed[:, None] | (np.arange(4) > 0)),
    )


@pytest.mark.slow
def test_training_ends_at_the_problem_with_offsets(tmp_path):
    record = recorded(
        tmp_path,
        partial(data.sphere, n=3, T=4, d=5),
        partial(initial.with_readout, law=initial.free_zero),
        descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
        seeds=6,
        steps=3000,
        snapshots=schedule.Evenly(1500),
        record_every=1000,
        model=models.with_values(models.temperature(2.0)),
    )
    found = measure(record.assign_attrs({"model.model.tau": 2.0}))
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in run("", 1, 1, 1).items()}
    assert found.attrs["kept"] == 6
    # Where all inputs are support vectors, all three problems are one.
    mixed = ~found["support"].values.all(axis=1)
    last = found["off"].values[:, :, -1]
    assert np.median(last[:, PROBLEMS.index("offset")]) < 0.01
    np.testing.assert_allclose(last[~mixed].std(axis=1), 0.0, atol=1e-9)
    assert (found["margin_ratio"].values <= 1 + 1e-9).all()
