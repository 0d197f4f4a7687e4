"""Plain descent under equal scores: what is measured of a record, and verdicts on datasets built by hand."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import Problem, data, descent, heads, initial, losses, metrics, records, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.experiments.landscape.gd_divergence import claims as gd_divergence
from jaxattn.experiments.landscape.gd_divergence import figure
from jaxattn.study.claims import Verdict
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import recording, schedule, training
from tests.instances import T, d, drawn_lines, lane, n

KEY = jax.random.key(0)
STEPS = np.array(schedule.Logarithmically(8)(100_000))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    setting = training.Training(
        partial(data.spread_scores, n=n, T=T, d=d, spread=0.0),
        initial.free,
        descent.gd(0.5),
        losses.logistic,
        heads.linear,
        seeds=5,
        key=1,
        steps=400,
        snapshots=schedule.Logarithmically(2),
        record_every=100,
    )
    path = tmp_path_factory.mktemp("runs") / "record.zarr"
    recording.run(setting, path, {"config": json.dumps({"optimizer": {"step_size": 0.5}})})
    return records.load(path)


def of_seed(record, seed):
    return Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})


@pytest.mark.slow
def test_a_run_is_held_against_the_solutions_of_its_optimal_tokens(record):
    one = gd_divergence.measure(record)
    assert one.attrs["run"] == "step 0.5"
    assert one.attrs["kept"] == one.sizes["seed"] == 5
    assert np.all(one["bend"] < one["bound"])
    for seed in range(5):
        problem = of_seed(record, seed)
        solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
        last = jnp.asarray(record["W_snapshots"].values[seed, -1])
        np.testing.assert_allclose(one["off"][seed, -1], 1 - metrics.correlation(last, solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["growth"][seed, -1], metrics.norm(last) / metrics.norm(solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["bound"][seed], smoothness.bound(problem))
        curvature = jax.hessian(losses.risk)(last, problem).reshape(d * d, d * d)
        np.testing.assert_allclose(one["bend"][seed, -1], np.linalg.norm(curvature, 2), rtol=0.02)


def test_seeds_without_an_optimum_are_left_out_by_reason(record):
    changed = record.copy(deep=True)
    changed["W"].values[1] = np.nan
    best = int(tokens.optimal(of_seed(record, 2))[0])
    changed["X"].values[2, 0, (best + 1) % T] = changed["X"].values[2, 0, best]
    found = optimum.optimum(changed)
    assert found.counts == {"attempted": 5, "kept": 3, "diverged": 1, "infeasible": 1, "unsolved": 0}
    assert found.kept.tolist() == [True, False, False, True, True]
    np.testing.assert_array_equal(found.problems.X, record["X"].values[[0, 3, 4]])
    alone = lane(found.problems, 1)
    np.testing.assert_array_equal(found.alpha[1], tokens.optimal(alone))
    assert float(
        svm.margins(svm.token_constraints(alone, found.alpha[1]), jnp.asarray(found.W[1])).min()
    ) == pytest.approx(1)


def made(step_size, growth, off, optimal=30, loss=(1.0, 0.5, 0.4), steps=STEPS):
    """What `measure` would return for runs like this, each seed a little apart."""
    noise = np.random.default_rng(0).normal(0, 0.02, (30, 1))
    along = ("seed", "snapshot")
    variables = {
        "growth": (along, (1 + noise) * growth),
        "off": (along, (1 + noise) * off),
        "bend": (along, np.full((30, len(steps)), 0.1)),
        "bound": (("seed",), np.full(30, 15.0)),
        "optimal": (("seed",), np.arange(30) < optimal),
        "loss": (("seed", "step"), np.broadcast_to(loss, (30, len(loss)))),
    }
    attrs = {"run": f"step {step_size:g}", "step_size": step_size, "attempted": 30, "kept": 30, "infeasible": 0}
    return xarray.Dataset(variables, {"seed": np.arange(30), "snapshot": steps}, attrs)


GROWTH = np.log(1 + STEPS)
OFF = 0.5 / (1 + GROWTH) ** 2


def judged(**second):
    runs = [made(0.05, GROWTH, OFF), made(5.0, **{"growth": GROWTH, "off": OFF} | second)]
    summaries, claims = gd_divergence.summarize({one.attrs["run"]: one for one in runs}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim for claim in claims}


@pytest.mark.parametrize(
    ("second", "name", "verdict"),
    [
        ({}, "norm", Verdict.HOLDS),
        ({"growth": STEPS**0.25}, "norm", Verdict.FAILS),
        ({"growth": np.minimum(GROWTH, 6.0)}, "norm", Verdict.FAILS),
        ({}, "direction", Verdict.HOLDS),
        ({"off": 0.1 + 0 * OFF}, "direction", Verdict.FAILS),
        ({"optimal": 29}, "direction", Verdict.FAILS),
        ({}, "step", Verdict.HOLDS),
        # The claim is of the smallest step: larger ones may raise the risk.
        ({"loss": (1.0, 1.5, 0.4)}, "step", Verdict.HOLDS),
    ],
)
def test_verdicts_follow_from_what_was_measured(second, name, verdict):
    assert judged(**second)[1][name].verdict is verdict


def test_a_step_beyond_the_bound_or_a_rise_of_the_risk_refutes_the_lemma():
    for first in (made(0.05, GROWTH, OFF, loss=(1.0, 1.1)), made(0.07, GROWTH, OFF)):
        (*_, claim) = gd_divergence.summarize({"first": first}, KEY)[1]
        assert claim.id == "gd-divergence:step"
        assert claim.verdict is Verdict.FAILS


def test_short_runs_decide_nothing():
    one = made(0.05, GROWTH[:20], OFF[:20], steps=STEPS[:20])
    claims = gd_divergence.summarize({"short": one}, KEY)[1]
    assert {claim.verdict for claim in claims} == {Verdict.OPEN}


def test_the_slope_is_that_of_each_seeds_own_line():
    claim = judged()[1]["norm"]
    for label, mean in claim.measured.items():
        low, high = claim.interval[label]
        assert low < mean < high
        assert mean == pytest.approx(1, abs=0.02)


def test_the_figure_draws_both_runs_against_the_time():
    summaries = judged()[0]
    drawn = figure.draw(summaries)
    assert [panel.get_title() for panel in drawn.axes] == ["(a) norm", "(b) direction"]
    for panel, name in zip(drawn.axes, ("growth", "off"), strict=True):
        curves = drawn_lines(panel, least=len(STEPS))
        for (x, y), run in zip(curves, ("step 5", "step 0.05"), strict=True):
            np.testing.assert_allclose(x, summaries[run].attrs["step_size"] * STEPS)
            np.testing.assert_array_equal(y, summaries[run][name])
    assert "step 5: 30 of 30 seeds kept" in drawn.get_supxlabel()
