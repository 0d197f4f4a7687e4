"""Training W under several losses: the verdicts, and what a trained record gives."""

import jax
import numpy as np
import pytest

from jaxattn import data, descent
from jaxattn.experiments.local.losses import examples, figure
from jaxattn.experiments.local.losses.claims import CLAIMS, summarize
from jaxattn.experiments.local.losses.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import drawn_lines
from tests.recorded import recorded

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"parallel": 0.99}, Verdict.HOLDS),
        ({"parallel": 0.9}, Verdict.FAILS),
        # Weights at rest have no limit in direction.
        ({"growth": 0.01}, Verdict.FAILS),
        # As near to the other solution: nothing says that it is the Frobenius one.
        ({"nuclear": 1e-4}, Verdict.FAILS),
    ],
)
def test_the_norm_has_to_grow_and_the_direction_to_be_the_frobenius_one(changes, verdict):
    summaries = summarize(examples.runs("exponential", **changes), KEY)
    found = {claim.id: claim.judge(summaries).verdict for claim in CLAIMS}
    # The other losses have no part in it.
    assert found == {"losses:exponential": verdict, "losses:correlation": Verdict.HOLDS}


def test_missing_losses_are_named():
    with pytest.raises(ValueError, match=r"^losses: expected the runs .*'correlation'.* found \['logistic'\]"):
        summarize({"logistic": examples.run("logistic")}, KEY)


def test_the_figure_draws_the_medians():
    summaries = summarize(examples.runs("exponential"), KEY)
    for axes, norm in zip(figure.draw(summaries).axes, ("frobenius", "nuclear"), strict=True):
        for line, one in zip(drawn_lines(axes, least=3), summaries.values(), strict=True):
            np.testing.assert_array_equal(line[1], one["off_50"].sel(norm=norm))


@pytest.mark.slow
def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    config = {"loss": {"_target_": "jaxattn.losses.correlation_loss"}}
    record = recorded(
        tmp_path, data.three_tokens, optimizer=rule, seeds=3, steps=40, snapshots=schedule.Evenly(10), config=config
    )
    one, made = measure(record), examples.run("correlation")
    assert one.attrs["run"] == "correlation"
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    assert set(made.attrs) <= set(one.attrs)
