"""Grids of prompts: the verdicts on planted ends, what a record gives, and what the figure colours."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from jaxattn import descent, heads, losses, records
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.prompt_local import examples, figure
from jaxattn.experiments.prompts.prompt_local.claims import CLAIMS, summarize
from jaxattn.experiments.prompts.prompt_local.measure import measure
from jaxattn.experiments.prompts.prompt_local.record import Grid, Grids
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording

KEY = jax.random.key(0)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
H, C, F = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [H, H]),
        ({"resting": 0.1}, [C, H]),
        ({"far": 0.1}, [F, H]),
        ({"wrong": 0.1, "resting": 0.1}, [F, H]),
        ({"both": False}, [H, F]),
        # Nothing grows: no share of what grows confirms anything.
        ({"resting": 1.0}, [F, F]),
    ],
)
def test_all_starts_have_to_arrive_and_some_problems_to_have_two_ends(changes, expected):
    summaries = summarize(examples.runs(**changes), KEY)
    assert [claim.judge(summaries).verdict for claim in CLAIMS] == expected


def test_a_single_problem_is_drawn_and_not_judged():
    one = examples.run(2, seeds=1)
    summaries = summarize({"one": one}, KEY)
    assert [claim.judge(summaries).verdict for claim in CLAIMS] == [Verdict.OPEN] * 2
    with pytest.raises(ValueError, match="expected a kept problem in each run"):
        summarize({"one": one.isel(seed=slice(0))}, KEY)


def test_the_figure_colours_every_start_by_its_end():
    summaries = summarize(examples.runs(resting=0.1, wrong=0.05), KEY)
    drawn = figure.draw(summaries)
    (image,) = drawn.axes[1].images
    shown = np.asarray(image.get_array()).ravel()
    np.testing.assert_array_equal(np.bincount(shown.astype(int)) > 0, [True, True, True, True])
    assert np.mean(shown == 2) == pytest.approx(0.1, abs=0.02)
    assert "85.4% of all starts" in drawn.axes[1].get_title()


@pytest.mark.parametrize(("reach", "side", "name"), [(0.0, 4, "reach"), (1.0, 1, "side")])
def test_a_grid_needs_a_reach_and_cells(reach, side, name):
    with pytest.raises(ValueError, match=rf"^{name}: expected"):
        Grid(reach, side)


def setting(law, start, steps=400):
    return Grids(law, start, RULE, losses.logistic, heads.linear, seeds=2, key=5, steps=steps)


def test_other_starts_and_other_dimensions_are_refused():
    with pytest.raises(TypeError, match=r"^weights: expected a grid of starts"):
        setting(partial(shared_query, n=1, T=3, d=2), None)
    with pytest.raises(ValueError, match=r"^data.d: expected 2"):
        recording.shapes(setting(partial(shared_query, n=1, T=3, d=3), Grid(2.0, 4)))


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    law = partial(shared_query, n=2, T=3, d=2)
    recording.run(setting(law, Grid(2.0, 4)), tmp_path / "record.zarr", {"config": json.dumps({"steps": 400})})
    record = records.load(tmp_path / "record.zarr")
    one, made = measure(record), examples.run(2)
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) <= set(one.attrs)
    # The first start is the lower left cell, and the number of a choice is that of the tokens which its end selects.
    np.testing.assert_allclose(one["p_initial"][0, 0], [-1.5, -1.5])
    logits = np.einsum("sntd,spd->spnt", record["X"], record["p"])
    kept = np.isin(record["seed"].values, one["seed"].values)
    np.testing.assert_array_equal(logits.argmax(axis=-1)[kept], one["alpha"].values[one["choice"].values])
    # One descent alone ends at the same place.
    problem = law(jax.random.wrap_key_data(record["data_key"].values[0]))
    alone = descent.train(
        np.outer(record["p_initial"].values[0, 3], problem.Z[0]), problem, optimizer=RULE, steps=400
    ).weights
    np.testing.assert_allclose(alone @ problem.Z[0], record["p"].values[0, 3], rtol=1e-6, atol=1e-8)
