"""Training v together with W: the risk in the log domain, the verdicts, and what a trained record gives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import descent, heads, initial, losses, models
from jaxattn.experiments.rates.joint_rate import examples, figure
from jaxattn.experiments.rates.joint_rate.claims import CLAIMS, summarize
from jaxattn.experiments.rates.joint_rate.measure import log_risk, measure
from jaxattn.experiments.rates.law import near_orthogonal
from jaxattn.records import load
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording
from jaxattn.study.settings.schedule import Logarithmically
from jaxattn.study.settings.training import Training
from tests.instances import drawn_lines

KEY = jax.random.key(0)


@pytest.mark.parametrize("margins", [[-3.0, 0.5, 2.0], [30.0, 39.9, 41.0], [-800.0, 0.0, 1e6]])
def test_the_logarithm_of_the_risk_is_that_of_the_risk(margins):
    expected = np.log(np.mean([float(losses.logistic(jnp.asarray(m))) for m in margins]))
    assert float(log_risk(jnp.array(margins))) == pytest.approx(expected, rel=1e-12)


def test_it_does_not_underflow():
    assert float(log_risk(jnp.array([1e5, 2e5]))) == pytest.approx(-1e5 - np.log(2), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "risk", "directions"),
    [
        ({}, Verdict.HOLDS, Verdict.HOLDS),
        # A bound from above: what falls faster obeys it.
        ({"exponent": 3.0}, Verdict.HOLDS, Verdict.HOLDS),
        ({"exponent": 0.3}, Verdict.FAILS, Verdict.HOLDS),
        ({"arrived": 0.8}, Verdict.HOLDS, Verdict.FAILS),
    ],
)
def test_the_verdicts_follow_from_the_numbers(changes, risk, directions):
    summaries = summarize(examples.runs(**changes), KEY)
    found = {claim.id: claim.judge(summaries).verdict for claim in CLAIMS}
    assert found == {"joint-rate:risk": risk, "joint-rate:directions": directions}


def test_few_seeds_and_few_steps_decide_nothing():
    runs = examples.runs()
    few = {run: one.isel(seed=slice(0, 10)).assign_attrs(kept=10) for run, one in runs.items()}
    short = {run: one.isel(snapshot=slice(0, 8)) for run, one in runs.items()}
    for datasets in (few, short):
        summaries = summarize(datasets, KEY)
        assert {claim.judge(summaries).verdict for claim in CLAIMS} == {Verdict.OPEN}


def test_missing_runs_are_named():
    with pytest.raises(ValueError, match=r"^joint-rate: expected the runs .*'normalized'.* found \['plain'\]"):
        summarize({"plain": examples.made("plain", 0.2)}, KEY)


def test_the_figure_draws_the_medians():
    summaries = summarize(examples.runs(), KEY)
    left, right = figure.draw(summaries).axes
    risks = drawn_lines(left, least=len(examples.STEPS))
    for line, one in zip(risks, summaries.values(), strict=True):
        np.testing.assert_array_equal(line[1], one["fallen"])
    pairs = [one[name] for one in summaries.values() for name in ("off_W", "off_v")]
    for line, expected in zip(drawn_lines(right, least=len(examples.STEPS)), pairs, strict=True):
        np.testing.assert_array_equal(line[1], expected)


def test_a_record_is_measured_and_looks_like_the_examples(tmp_path):
    rule = descent.normalized_gd(1.0, floor=0.0, penalty=0.0)
    law = functools.partial(near_orthogonal, n=2, T=3, d=12)
    made = Training(
        law,
        initial.with_readout,
        rule,
        losses.logistic,
        heads.linear,
        seeds=3,
        key=1,
        steps=20,
        snapshots=Logarithmically(3),
        model=models.with_values(),
    )
    config = '{"optimizer": {"_target_": "jaxattn.descent.normalized_gd"}}'
    recording.run(made, tmp_path / "record.zarr", {"config": config, "attempted": 3})
    record = load(tmp_path / "record.zarr")
    one, example = measure(record), examples.made("normalized", 1.0)
    assert one.attrs["run"] == "normalized"
    assert {name: example[name].dims for name in example} == {name: one[name].dims for name in one}
    assert set(example.attrs) <= set(one.attrs)
    W, v, problem = (record[name].values[0] for name in ("W_snapshots", "readout_snapshots", "X"))
    s = np.exp(np.einsum("ntd,de,ne->nt", problem, W[-1], problem[:, 0]))
    outputs = np.einsum("nt,ntd->nd", s / s.sum(axis=1, keepdims=True), problem)
    margins = record["Y"].values[0] * (outputs @ v[-1])
    assert float(one["fallen"][0, -1]) == pytest.approx(-np.log(np.mean(np.log1p(np.exp(-margins)))), rel=1e-6)
    assert float(one["size"][0, -1]) == pytest.approx(np.linalg.norm(v[-1]))
    assert float(one["off_v"][0, -1]) == pytest.approx(1 - v[-1][0] / np.linalg.norm(v[-1]), abs=1e-12)
