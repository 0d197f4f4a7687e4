"""Synthetic measurements of training under several losses, the heavy tail, and a run that trains v too."""

import jax
import numpy as np
import pytest

from jaxattn import data, descent, initial, models
from jaxattn.experiments.local.losses import EXPERIMENT
from jaxattn.experiments.local.losses.tails import heavy_tail
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.experiments.synthetic import synthetic
from tests.recorded import recorded

SEEDS, STEPS = 100, np.array([500, 1000, 2000])
LOSSES = ("logistic", "exponential", "correlation", "heavy-tail")
VERDICTS = {"losses:joint": "holds with a correction"}


def measured():
    """With v fixed, all seeds end near the solution; with v trained, only those of the losses with slow tails."""
    fixed = {loss: run(near=100, falling=4.0) for loss in LOSSES}
    joint = {f"joint {loss}": run(near=40 if k < 2 else 100, falling=1.0) for k, loss in enumerate(LOSSES)}
    return fixed | joint


def run(near, falling):
    """A run of which so many seeds end near the Frobenius solution; distances fall by a factor between snapshots."""
    ends = np.where(np.arange(SEEDS) < near, 1e-3, 0.1) * np.resize([0.9, 1.1], SEEDS)
    off = np.stack([ends, np.full(SEEDS, 0.15)], axis=1)[..., None] * falling ** np.array([2.0, 1.0, 0.0])
    return synthetic(
        SEEDS,
        {"steps": 2000},
        {"norm": np.array(["frobenius", "nuclear"], object), "snapshot": STEPS},
        off=(("seed", "norm", "snapshot"), np.minimum(off, 1.0)),
        path=(("seed", "snapshot", "input", "feature"), np.ones((SEEDS, 1, 2, 2)) * STEPS[:, None, None]),
    )


def test_a_run_far_from_the_solution_decides_nothing_while_its_median_falls():
    moving = {name: run(near=40, falling=4.0) for name in ("joint logistic", LOSSES[-1])}
    summaries = EXPERIMENT.estimates(measured() | moving, jax.random.key(0))
    # One loss that ends elsewhere refutes what is said of all.
    assert EXPERIMENT.claims[0].judge(summaries).verdict is Verdict.FAILS
    np.testing.assert_allclose(summaries["joint logistic"]["fall"], [10.0, 1 / 0.15], rtol=0.2)
    note = EXPERIMENT.claims[-1].judge(summaries).note
    assert note == "Not yet converged to the solution: joint logistic."


def test_the_heavy_tail_decreases_and_has_a_lipschitz_derivative():
    values_and_slopes = jax.jit(jax.vmap(jax.value_and_grad(heavy_tail)))
    x, near = np.array([-2.0, 0.0, 1.0, 3.0, 1e8]), np.linspace(-1.0, 1.0, 201)
    values, slopes = map(np.asarray, values_and_slopes(np.concatenate([x, near])))
    np.testing.assert_allclose(values[:5], [3.0, 1.0, 0.5, 0.25, 1 / (1 + 1e8)], rtol=1e-15)
    np.testing.assert_allclose(slopes[:5], [-1.0, -1.0, -0.25, -1 / 16, -((1 + 1e8) ** -2)], rtol=1e-14)
    assert np.abs(np.diff(slopes[5:]) / np.diff(near)).max() <= 2


@pytest.mark.slow
def test_of_a_joint_record_the_attention_is_measured(tmp_path):
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    size = {"seeds": 3, "steps": 40, "snapshots": schedule.Evenly(10), "model": models.with_values()}
    record = recorded(tmp_path, data.three_tokens, initial.with_readout, rule, **size)
    found = EXPERIMENT.measure(record)
    expected = np.einsum("skde,sie->skid", record["W_snapshots"].values, record["Z"].values)
    np.testing.assert_allclose(found["path"], expected, rtol=1e-12)
    assert found["off"].dims == ("seed", "norm", "snapshot")
    assert found.attrs["kept"] == 3
