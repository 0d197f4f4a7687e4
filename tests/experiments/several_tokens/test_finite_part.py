"""Synthetic ratios inside the selected sets, the line through them, and ratios at the best attention."""

import itertools

import jax
import numpy as np
import pytest
import xarray

from jaxattn.experiments.several_tokens.finite_part import EXPERIMENT, summarize
from jaxattn.experiments.several_tokens.limit import PARTS
from jaxattn.study.claims import EXCLUDED
from tests.experiments.several_tokens.runs import SEEDS, resting
from tests.instances import gives_up

RUNS, INPUTS = 40, 3
VERDICTS = {"finite-part:ReLU": "does not hold"}


def measured():
    """Under the quadratic head the ratios are the predicted ones; the ReLU head determines few."""
    return {"d = 4": run(0.1), "lambda = 0.2": run(1.0).assign_attrs({"head.penalty": 0.2})}


def run(determined, off=0.0):
    """Inputs that select two tokens, of which this share determines their ratio; trained ratios are off by this."""
    rng, inputs = np.random.default_rng(0), np.arange(RUNS * INPUTS)
    kind = np.where(rng.permutation(inputs.size) < determined * inputs.size, 0, 2)
    pair, whole = inputs[kind == 0], np.flatnonzero((kind.reshape(RUNS, INPUTS) == 0).all(axis=1))
    predicted = rng.normal(0, 1, inputs.size)
    descended = predicted + off + rng.normal(0, 0.02, inputs.size)
    one = xarray.Dataset(
        {
            "kind": ("mixed", kind),
            "drift": ("mixed", 1e-4 * rng.uniform(0.5, 1.5, inputs.size)),
            "predicted": ("pair", predicted[pair]),
            "descended": ("pair", descended[pair]),
            "pair_seed": ("pair", pair // INPUTS),
            "fitted": ("whole", 0.9 + 0.0 * whole),
            "foretold": ("whole", 0.01 + 0.0 * whole),
        }
    )
    for axis, part in itertools.product(("mixed", "pair", "whole"), PARTS):
        one[part if axis == "mixed" else f"{axis}_{part}"] = (axis, np.ones(one.sizes[axis], bool))
    counts = {"attempted": RUNS + 8, "kept": RUNS, "finite": 8}
    return one.assign_attrs({"steps": 2000} | counts | {f"every_{reason}": n for reason, n in counts.items()})


def test_the_line_through_ratios_that_are_off_has_another_intercept():
    runs = measured() | {"lambda = 0.2": run(0.9, off=0.4).assign_attrs({"head.penalty": 0.2})}
    summary = summarize(runs, jax.random.key(0))["quadratic"]
    slope, intercept = np.polyfit(summary["predicted"], summary["descended"], 1)
    np.testing.assert_allclose([summary["slope"], summary["intercept"]], [slope, intercept], rtol=1e-9)
    assert 0.38 < float(summary["intercept_low"]) < 0.4 < float(summary["intercept_high"]) < 0.42


@pytest.fixture(scope="module")
def at_the_best():
    return EXPERIMENT.measure(resting())


@pytest.mark.slow
def test_at_the_best_attention_the_ratios_are_the_predicted_ones(at_the_best):
    one = at_the_best
    assert (one["kind"] == 0).all()
    assert one.sizes["pair"] > 20
    np.testing.assert_allclose(one["descended"], one["predicted"], atol=1e-12)
    assert np.ptp(one["predicted"].values) > 1
    # The finite part is then the same, fitted or foretold.
    assert one.sizes["whole"] > 5
    np.testing.assert_allclose(one["foretold"], one["fitted"], atol=1e-9)
    np.testing.assert_array_equal(one["drift"], 0)


@pytest.mark.parametrize("prefix", ["", "every_"])
def test_every_run_is_counted_once(at_the_best, prefix):
    counts = at_the_best.attrs
    left_out = [counts[prefix + reason] for reason in EXCLUDED if prefix + reason in counts]
    assert counts[prefix + "attempted"] == SEEDS == counts[prefix + "kept"] + sum(left_out)
    assert counts[prefix + "kept"] > 0


def test_a_ratio_that_is_off_or_moves_is_seen():
    off = EXPERIMENT.measure(resting(off=0.4))
    difference = np.asarray(off["descended"] - off["predicted"])
    np.testing.assert_allclose(difference, -0.4, atol=1e-12)  # Of the others beside the first.
    assert (np.asarray(off["foretold"]) > np.asarray(off["fitted"]) + 1e-6).any()
    moving = EXPERIMENT.measure(resting(drifting=0.3))
    assert (moving["drift"] > 0.01).all()


def test_runs_without_solutions_are_counted_and_have_no_distances(at_the_best):
    found = EXPERIMENT.measure(resting(), solver=gives_up)
    assert found.sizes["whole"] == 0
    lost = at_the_best.attrs["every_kept"] - found.attrs["every_kept"]
    assert found.attrs["every_unsolved"] == lost > 0
    assert not np.isnan(found["fitted"]).any()
