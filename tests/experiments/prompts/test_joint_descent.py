"""Attention and head trained together: the verdicts on planted runs, and what a trained record gives."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxattn import data, descent, initial, models
from jaxattn.experiments.prompts.joint import PROBLEMS
from jaxattn.experiments.prompts.joint_descent import examples, figure
from jaxattn.experiments.prompts.joint_descent.claims import CLAIMS, summarize
from jaxattn.experiments.prompts.joint_descent.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from jaxattn.study.style import page
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)
H, C, F, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [H, H, C, C]),
        ({"head": 0.1}, [F, H, C, C]),
        ({"whole": 0.1}, [H, F, C, C]),
        ({"trained": "p", "relaxed": 1e-5}, [H, H, H, C]),
        ({"trained": "W", "relaxed": 1e-5}, [H, H, C, H]),
        ({"offset": 0.05}, [H, H, F, F]),
    ],
)
def test_each_claim_reads_its_own_distance(changes, expected):
    summaries = summarize(examples.runs(**changes), KEY)
    assert [claim.judge(summaries).verdict for claim in CLAIMS] == expected


def test_seeds_of_one_kind_alone_decide_nothing_of_the_other():
    every = {run: one.isel(seed=one["support"].values.all(axis=1)) for run, one in examples.runs().items()}
    summaries = summarize(every, KEY)
    assert [claim.judge(summaries).verdict for claim in CLAIMS] == [H, H, OPEN, OPEN]
    one = examples.run("p", 0.1)
    assert [claim.judge(summarize({"one": one}, KEY)).verdict for claim in CLAIMS] == [OPEN] * 4
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        summarize({"one": one.isel(seed=slice(0))}, KEY)


def test_the_figure_draws_medians_along_the_steps_and_at_the_end():
    summaries = summarize(examples.runs(), KEY)
    axes = figure.draw(summaries).axes
    for place, run in ((0, "p and v, tau = 1"), (1, "W and v, tau = 1")):
        for line, problem in zip(drawn_lines(axes[place], least=4), PROBLEMS, strict=True):
            np.testing.assert_array_equal(line[1], summaries[run]["off_50"].sel(problem=problem))
    ends = [float(one["off_50"][0, -1]) for one in summaries.values() if one.attrs["trained"] == "W"]
    np.testing.assert_allclose(drawn_lines(axes[2], least=3)[0][1], ends)


def test_the_figure_is_drawn_where_all_inputs_of_all_seeds_are_support_vectors(tmp_path):
    runs = {name: one.assign(support=one["support"] | True) for name, one in examples.runs().items()}
    drawn = figure.draw(summarize(runs, KEY))
    assert [list(axes.lines) for axes in drawn.axes] == [[], [], []]
    assert page.save(drawn, tmp_path, "joint-descent")[0].stat().st_size > 0


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    config = {
        "data": {"_target_": "jaxattn.data.sphere"},
        "model": {"_target_": "jaxattn.models.with_values", "model": {"tau": 2.0}},
    }
    record = recorded(
        tmp_path,
        partial(data.sphere, n=3, T=4, d=5),
        partial(initial.with_readout, law=initial.free_zero),
        descent.normalized_gd(0.1, floor=0.0, penalty=0.0),
        config,
        seeds=6,
        steps=3000,
        snapshots=schedule.Evenly(1500),
        record_every=1000,
        model=models.with_values(models.temperature(2.0)),
    )
    one, made = measure(record), examples.run("W", 2.0)
    assert one.attrs["run"] == made.attrs["run"]
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) <= set(one.attrs)
    assert one.attrs["kept"] == 6
    # The right problem is that with offsets; where all inputs are support vectors, all three are one.
    mixed = ~one["support"].values.all(axis=1)
    last = one["off"].values[:, :, -1]
    assert np.median(last[:, PROBLEMS.index("offset")]) < 0.01
    np.testing.assert_allclose(last[~mixed].std(axis=1), 0.0, atol=1e-9)
    assert (one["margin_ratio"].values <= 1 + 1e-9).all()
