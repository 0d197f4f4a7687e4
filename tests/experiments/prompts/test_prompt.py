"""Training a prompt: the verdicts on planted runs, and what trained records of p and of W give."""

import json
from functools import partial

import jax
import numpy as np
import pytest

from jaxattn import descent, heads, initial, losses, records
from jaxattn.data.prompts import shared_query
from jaxattn.experiments.prompts.prompt import examples, figure
from jaxattn.experiments.prompts.prompt.claims import CLAIMS, summarize
from jaxattn.experiments.prompts.prompt.measure import measure
from jaxattn.experiments.prompts.prompt.record import Prompts, prompt, zero
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)
RULE = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
LAW = partial(shared_query, n=3, T=4, d=5)


def verdicts(datasets):
    summaries = summarize(datasets, KEY)
    return [claim.judge(summaries).verdict for claim in CLAIMS]


H, F = Verdict.HOLDS, Verdict.FAILS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [H, H, H]),
        # Weights at rest have no limit in direction.
        ({"growth": 0.01, "trained": "p"}, [F, H, F]),
        ({"locally": 0.5}, [F, H, H]),
        ({"ratio": 0.95}, [F, H, H]),
        ({"ratio": 0.8}, [F, F, H]),
        ({"beside": 0.1}, [H, H, F]),
        ({"posed": 0.1}, [H, H, F]),
    ],
)
def test_each_claim_asks_for_its_own(changes, expected):
    assert verdicts(examples.runs(**changes)) == expected


def test_missing_runs_decide_nothing_and_no_seed_is_an_error():
    one = examples.run()
    assert verdicts({one.attrs["run"]: one}) == [Verdict.OPEN] * 3
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        summarize({"one": one.isel(seed=slice(0))}, KEY)


def test_the_figure_draws_medians_and_means():
    summaries = summarize(examples.runs(), KEY)
    left, right = figure.draw(summaries).axes
    for axes, name in ((left, "off_50"), (right, "ratio")):
        drawn = drawn_lines(axes, least=4)
        assert len(drawn) == 5
        for line, one in zip(drawn, summaries.values(), strict=True):
            np.testing.assert_array_equal(line[1], one[name])


@pytest.mark.slow
def test_training_p_and_training_W_give_the_same_prompts_and_solutions(tmp_path):
    config = {
        "optimizer": {"_target_": "jaxattn.descent.normalized_gd", "penalty": 0.0},
        "data": {"_target_": "jaxattn.data.prompts.shared_query"},
    }
    setting = {"seeds": 4, "steps": 200, "snapshots": schedule.Evenly(50)}
    of_W = measure(recorded(tmp_path / "W", LAW, initial.free_zero, RULE, config, **setting))
    trained = Prompts(LAW, zero, RULE, losses.logistic, heads.linear, key=1, model=prompt, **setting)
    recording.run(trained, tmp_path / "record.zarr", {"config": json.dumps(config)})
    of_p = measure(records.load(tmp_path / "record.zarr"))
    np.testing.assert_allclose(of_W["p"], of_p["p"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(of_W["off"], of_p["off"], atol=1e-10)
    assert float(of_W["beside"].max()) < 1e-12
    assert float(of_W["posed"].max()) < 1e-8
    assert (of_p.attrs["run"], of_p.attrs["kept"]) == ("p, keys X, exact direction", 4)
    made = examples.run()
    assert {name: made[name].dims for name in made.data_vars} == {name: of_p[name].dims for name in of_p.data_vars}
    assert set(made.attrs) <= set(of_p.attrs)
