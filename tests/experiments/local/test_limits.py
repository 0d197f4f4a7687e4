"""Long runs: their distance from each solution, its rate, and the verdicts on the claims."""

import functools
import json

import jax
import numpy as np
import pytest
import xarray

from jaxattn import data, descent, heads, initial, losses, records
from jaxattn.experiments.local import limits
from jaxattn.experiments.local.kq_penalty import claims as kq_penalty
from jaxattn.experiments.local.kq_penalty import figure as kq_figure
from jaxattn.experiments.local.rate import claims as rate
from jaxattn.experiments.local.rate import figure as rate_figure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import recording, schedule, training
from tests.instances import T, d, n

KEY = jax.random.key(0)
EPSILON = descent.PUBLISHED_EPSILON
STEPS = np.array(schedule.Logarithmically(8)(200_000))


@pytest.mark.parametrize("m", [d, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_is_held_against_the_solutions_of_its_width_and_described(tmp_path, m):
    setting = training.Training(
        functools.partial(data.sphere, n=n, T=T, d=d),
        functools.partial(initial.factored, m=m),
        descent.jointly_normalized_gd(0.1, penalty=1e-12),
        losses.logistic,
        heads.linear,
        seeds=5,
        key=1,
        steps=50,
        snapshots=schedule.Logarithmically(2),
        record_every=10,
    )
    optimizer = {"_target_": "jaxattn.descent.jointly_normalized_gd", "floor": 0.0, "penalty": 1e-12}
    config = {"optimizer": optimizer, "weights": {"m": m}, "steps": 50}
    recording.run(setting, tmp_path / "record.zarr", {"config": json.dumps(config)})
    record = records.load(tmp_path / "record.zarr")
    one = limits.measure(record)
    assert one["snapshot"].values.tolist() == [1, 3, 7, 19, 50]
    assert one["norm"].values.tolist()[:2] == ["frobenius", "nuclear"]
    assert one.sizes["norm"] == (3 if m < d else 2)
    assert one.attrs["run"] == f"KQ, jointly_normalized_gd, floor 0, penalty 1e-12, m = {m}, scale 1, 50 steps"
    assert one["gradient_norm"].shape == (one.sizes["seed"], 5)
    first = int(one["seed"][0])
    K, Q = record["K"].values[first], record["Q"].values[first]
    np.testing.assert_allclose(one["size"][0, -1], np.linalg.norm(K @ Q.T))
    np.testing.assert_allclose(one["length"][0], np.sqrt((K**2).sum() + (Q**2).sum()))
    assert np.all((one["off"] > 0) & (one["off"] < 2))


def made(off, weights="W", optimizer="normalized_gd", penalty=0.0, norms=("frobenius", "nuclear"), **more):
    """What `limits.measure` would return for runs that are this far off, (norm, snapshot), each seed a little apart."""
    off = np.broadcast_to(off, (len(norms), len(STEPS)))
    seeds = 10 ** np.random.default_rng(0).normal(0, 0.1, 30)
    attrs = {"weights": weights, "optimizer": optimizer, "penalty": penalty, "width": 10, "scale": 1.0} | more
    attrs = {"run": str(attrs), "steps": 20_000, "attempted": 30, "kept": 30, "infeasible": 0} | attrs
    variables = {
        "off": (("seed", "norm", "snapshot"), np.minimum(seeds[:, None, None] * off, 1.0)),
        "gradient_norm": (("seed", "step"), np.full((30, 2), 2 * penalty * 7.0)),
        "length": (("seed",), np.full(30, 7.0)),
    }
    return xarray.Dataset(variables, {"norm": list(norms), "snapshot": STEPS, "seed": np.arange(30)}, attrs)


def rates(exact_W, exact_KQ, published=5e-3):
    runs = [
        made(published, "W", penalty=EPSILON),
        made(exact_W, "W"),
        made(published, "KQ", penalty=EPSILON),
        made(exact_KQ, "KQ"),
    ]
    return {one.attrs["run"]: one for one in runs}


def test_the_exponent_is_that_of_the_power():
    one = rate.along(made(np.minimum(1, 100.0 * STEPS**-1.7)), "frobenius", KEY)
    np.testing.assert_allclose(one["exponent_mean"], -1.7, atol=1e-6)
    np.testing.assert_allclose(one["off"][-1], 100.0 * STEPS[-1] ** -1.7, rtol=0.1)


@pytest.mark.parametrize(
    ("exact_W", "exact_KQ", "published", "verdicts"),
    [
        (1e3 * STEPS**-2.0, 1e-2, 5e-3, (Verdict.CORRECTED, Verdict.FAILS)),
        (1e1 * STEPS**-1.0, 1e-2, 5e-3, (Verdict.FAILS, Verdict.FAILS)),
        (1e6 * STEPS**-2.0, 1e-2, 5e-3, (Verdict.FAILS, Verdict.FAILS)),
        (1e3 * STEPS**-2.0, 1e3 * STEPS**-2.0, 1e3 * STEPS**-2.0, (Verdict.FAILS, Verdict.HOLDS)),
    ],
)
def test_the_verdicts_on_the_rates_follow_the_runs(exact_W, exact_KQ, published, verdicts):
    summaries, claims = rate.summarize(rates(exact_W, exact_KQ, published), KEY)
    assert tuple(claim.verdict for claim in claims) == verdicts
    assert len(rate_figure.draw(summaries).axes) == 2


def test_a_short_run_decides_no_rate():
    short = {run: one.isel(snapshot=slice(10)) for run, one in rates(1e-3, 1e-3).items()}
    summaries, claims = rate.summarize(short, KEY)
    assert {claim.verdict for claim in claims} == {Verdict.OPEN}
    assert len(rate_figure.draw(summaries).axes) == 2


def penalties(separate=6e-3, joint=None, path=None, ratio=1.0):
    """Runs as kq-penalty has them: without and with penalties, and as published."""
    rules = "exact_normalized_gd", "jointly_normalized_gd"
    joint = np.minimum(1, 10.0 * STEPS**-1.0) if joint is None else joint
    path = (lambda penalty: 3 / np.log(penalty) ** 2) if path is None else path
    runs = [made(off, "KQ", rule) for off, rule in zip((separate, joint), rules, strict=True)]
    runs += [made(path(penalty), "KQ", rule, penalty) for rule in rules for penalty in (1e-100, 1e-30, 1e-16, 1e-8)]
    runs += [made(2e-3, "KQ", penalty=EPSILON), made(0.5, "KQ", penalty=0.0), made(0.3, "KQ", "gd", penalty=0.0)]
    runs[-3]["gradient_norm"] = ratio * runs[-3]["gradient_norm"]
    runs += [made(1e-2, "KQ", rules[0], scale=0.01)]
    return {one.attrs["run"]: one for one in runs}


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({}, "published", Verdict.HOLDS),
        ({"ratio": 3.0}, "published", Verdict.FAILS),
        ({}, "no-penalty", Verdict.CORRECTED),
        ({"joint": 6e-3}, "no-penalty", Verdict.FAILS),
        ({"separate": 10.0 * STEPS**-1.0}, "no-penalty", Verdict.HOLDS),
        ({}, "penalized", Verdict.HOLDS),
        ({"path": lambda penalty: 1e-2}, "penalized", Verdict.FAILS),
    ],
)
def test_the_verdicts_on_the_penalty_follow_the_runs(changed, claim, verdict):
    summaries, claims = kq_penalty.summarize(penalties(**changed), KEY)
    found = {one.id.partition(":")[2]: one.verdict for one in claims}
    assert found[claim] == verdict
    assert len(kq_figure.draw(summaries).axes) == 2


def test_a_run_without_a_kept_seed_is_named():
    runs = rates(1e-3, 1e-3)
    name = next(iter(runs))
    runs[name] = runs[name].isel(seed=slice(0))
    for summarize in (rate.summarize, kq_penalty.summarize):
        with pytest.raises(ValueError, match="expected a kept seed in each run"):
            summarize(runs, KEY)


def test_a_schedule_has_whole_steps_up_to_the_last():
    assert schedule.Evenly(3)(10) == (3, 6, 9)
    assert schedule.Logarithmically(1)(1000) == (1, 10, 100, 1000)
    assert schedule.Logarithmically(20)(12)[-1] == 12
    assert np.all(np.diff(schedule.Logarithmically(20)(12)) > 0)
    assert schedule.Logarithmically(4)(1) == (1,)
