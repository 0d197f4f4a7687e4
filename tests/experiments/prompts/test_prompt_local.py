"""Synthetic measurements of grids of prompts, and what a record gives."""

from functools import partial

import jax
import numpy as np
import pytest
import xarray

from jaxattn import descent, heads, losses
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.prompt_local import estimate, measure
from jaxattn.experiments.prompts.prompt_local.record import Grid, Grids
from jaxattn.study.settings import recording
from tests.recorded import written

RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
SEEDS, SIDE = 200, 5
VERDICTS = {"prompt-local:attract": "holds with a correction"}


def measured():
    """Some starts with two inputs stay at a point; all others end at two locally optimal choices."""
    return {
        "n = 1, 25 starts": run(1),
        "n = 2, 25 starts": run(2, resting=0.2),
        "n = 1, 10,000 starts": run(1, seeds=1),
        "n = 2, 10,000 starts": run(2, resting=0.2, seeds=1),
    }


def run(inputs, resting=0.0, seeds=SEEDS):
    """The ends of a grid of starts in problems of three tokens an input: to the left one choice, to the right another.

    A share of the starts stays at a point.
    """
    starts, choices = SIDE**2, 3**inputs
    rows, columns = np.meshgrid(*[np.linspace(-8, 8, SIDE)] * 2, indexing="ij")
    angles = np.arange(choices)
    X = np.stack([np.cos(np.arange(3.0)), np.sin(np.arange(3.0))], axis=1)
    arrays = {
        "choice": (("start",), np.where(columns.ravel() > 0, 1, 0)),
        "off": (("start",), np.full(starts, 1e-4)),
        "moved": (("start",), np.where(np.arange(starts) >= (1 - resting) * starts, 0.01, 0.5)),
        "solution": (("choice_number", "feature"), np.stack([np.cos(angles), np.sin(angles)], axis=1)),
        "locally": (("choice_number",), np.arange(choices) < 2),
        "X": (("input", "token", "feature"), np.tile(X, (inputs, 1, 1))),
        "score": (("input", "token"), np.tile(np.arange(3.0), (inputs, 1))),
        "p_initial": (("start", "feature"), np.stack([columns.ravel(), rows.ravel()], axis=1)),
    }
    alpha = np.stack(np.unravel_index(np.arange(choices), (3,) * inputs), axis=1)
    counts = {"attempted": seeds, "kept": seeds, "diverged": 0, "unsolved": 0}
    return xarray.Dataset(
        {name: (("seed", *dims), np.tile(array, (seeds, *[1] * array.ndim))) for name, (dims, array) in arrays.items()}
        | {"alpha": (("choice_number", "input"), alpha)},
        {"seed": np.arange(seeds)},
        {"data.n": inputs, "steps": 4000, **counts},
    )


@pytest.mark.parametrize(
    ("resting", "far", "shares"),
    [(0.2, 0.0, [0.8, 0.2, 0.0, 1.0]), (1.0, 0.0, [0, 1, 0, 0]), (0.0, 0.4, [0.6, 0, 0.4, 0.6])],
)
def test_starts_arrive_rest_or_end_elsewhere(resting, far, shares):
    measured = run(1, resting)
    measured["off"] = measured["off"].where(np.arange(SIDE**2) >= far * SIDE**2, 0.5)
    found = estimate(measured, jax.random.key(0))
    assert [float(found[name]) for name in ("arrived", "resting", "elsewhere", "growing")] == pytest.approx(shares)
    assert np.mean(found["end"] == -1) == pytest.approx(resting)
    assert np.mean(found["end"] == -2) == pytest.approx(far)
    assert int(found["several"]) == (SEEDS if resting < 1 else 0)


@pytest.mark.parametrize(("reach", "side", "name"), [(0.0, 4, "reach"), (1.0, 1, "side")])
def test_a_grid_needs_a_reach_and_cells(reach, side, name):
    with pytest.raises(ValueError, match=rf"^{name}: expected"):
        Grid(reach, side)


def setting(law, start):
    return Grids(law, start, RULE, losses.logistic, heads.linear, seeds=2, key=5, steps=400)


def test_other_starts_and_other_dimensions_are_refused():
    with pytest.raises(TypeError, match=r"^weights: expected a grid of starts"):
        setting(partial(shared_query, n=1, T=3, d=2), None)
    with pytest.raises(ValueError, match=r"^data.d: expected 2"):
        recording.shapes(setting(partial(shared_query, n=1, T=3, d=3), Grid(2.0, 4)))


@pytest.mark.slow
def test_choices_are_the_tokens_that_the_ends_select(tmp_path):
    law = partial(shared_query, n=2, T=3, d=2)
    record = written(setting(law, Grid(2.0, 4)), tmp_path)
    found = measure(record)
    assert {name: found[name].dims for name in found} == {name: array.dims for name, array in run(2).items()}
    # The first start is the lower left cell.
    np.testing.assert_allclose(found["p_initial"][0, 0], [-1.5, -1.5])
    logits = np.einsum("sntd,spd->spnt", record["X"], record["p"])
    kept = np.isin(record["seed"].values, found["seed"].values)
    np.testing.assert_array_equal(logits.argmax(axis=-1)[kept], found["alpha"].values[found["choice"].values])
    # One descent alone ends at the same place.
    problem = law(jax.random.wrap_key_data(record["data_key"].values[0]))
    start = np.outer(record["p_initial"].values[0, 3], problem.Z[0])
    alone = descent.train(start, problem, optimizer=RULE, steps=400).weights
    np.testing.assert_allclose(alone @ problem.Z[0], record["p"].values[0, 3], rtol=1e-6, atol=1e-8)
