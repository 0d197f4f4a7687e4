"""Training W under several losses: the verdicts, and what a trained record gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, initial, models
from jaxattn.experiments.local.losses import examples, figure
from jaxattn.experiments.local.losses.claims import CLAIMS, JOINT, summarize
from jaxattn.experiments.local.losses.measure import measure
from jaxattn.experiments.local.losses.tails import heavy_tail
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
    others = {"losses:correlation": Verdict.HOLDS, "losses:heavy-tail": Verdict.HOLDS, "losses:joint": Verdict.OPEN}
    assert found == {"losses:exponential": verdict, **others}


def joint(changes):
    fixed = dict(examples.runs("logistic"))
    return summarize(
        fixed | {name: examples.run(name, **({"falling": 1.0} | changes.get(name, {}))) for name in JOINT}, KEY
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"joint logistic": {"parallel": 0.4}}, Verdict.CORRECTED),
        # Far from the solution, but still on the way to it.
        ({"joint logistic": {"parallel": 0.4, "falling": 4.0}}, Verdict.OPEN),
        ({"joint heavy-tail": {"parallel": 0.4}}, Verdict.FAILS),
        ({"joint correlation": {"growth": 0.01}}, Verdict.FAILS),
    ],
)
def test_with_v_trained_every_loss_has_to_lead_to_the_solution(changes, verdict):
    found = CLAIMS[-1].judge(joint(changes))
    assert found.verdict is verdict
    assert ("Not yet converged to the solution: joint logistic." in found.note) == (verdict is Verdict.OPEN)


def test_the_heavy_tail_decreases_and_has_a_lipschitz_derivative():
    slope = jax.vmap(jax.grad(heavy_tail))
    x = jnp.array([-2.0, 0.0, 1.0, 3.0, 1e8])
    np.testing.assert_allclose(heavy_tail(x), [3.0, 1.0, 0.5, 0.25, 1 / (1 + 1e8)], rtol=1e-15)
    np.testing.assert_allclose(slope(x), [-1.0, -1.0, -0.25, -1 / 16, -((1 + 1e8) ** -2)], rtol=1e-14)
    near = jnp.linspace(-1.0, 1.0, 201)
    assert np.abs(np.diff(slope(near)) / np.diff(near)).max() <= 2


def test_missing_losses_are_named():
    with pytest.raises(ValueError, match=r"^losses: expected the runs .*'correlation'.* found \['logistic'\]"):
        summarize({"logistic": examples.run("logistic")}, KEY)


def test_the_figure_draws_the_medians():
    summaries = summarize(examples.runs("exponential"), KEY)
    for axes, norm in zip(figure.draw(summaries).axes, ("frobenius", "nuclear"), strict=True):
        for line, one in zip(drawn_lines(axes, least=3), summaries.values(), strict=True):
            np.testing.assert_array_equal(line[1], one["off_50"].sel(norm=norm))


def test_the_figure_draws_the_runs_with_v_trained_beside_them():
    summaries = joint({"joint logistic": {"parallel": 0.4}})
    axes = figure.draw(summaries).axes[2]
    assert "40% to 100% parallel" in axes.get_title()
    for line, name in zip(drawn_lines(axes, least=3), JOINT, strict=True):
        np.testing.assert_array_equal(line[1], summaries[name]["off_50"].sel(norm="frobenius"))


@pytest.mark.slow
def test_of_a_joint_record_the_attention_is_measured(tmp_path):
    rule = descent.normalized_gd(0.1, floor=0.0, penalty=0.0)
    config = {"loss": {"_target_": "jaxattn.experiments.local.losses.tails.heavy_tail"}}
    kept = schedule.Evenly(10)
    record = recorded(
        tmp_path,
        data.three_tokens,
        initial.with_readout,
        rule,
        config,
        model=models.with_values(),
        seeds=3,
        steps=40,
        snapshots=kept,
    )
    one, made = measure(record), examples.run("joint heavy-tail")
    assert one.attrs["run"] == "joint heavy-tail"
    assert {name: made[name].dims for name in made.data_vars} == {name: one[name].dims for name in one.data_vars}
    expected = np.einsum("skde,sie->skid", record["W_snapshots"].values, record["Z"].values)
    np.testing.assert_allclose(one["path"], expected, rtol=1e-12)


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
