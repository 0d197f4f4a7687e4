"""The limit of (K, Q): verdicts on the claims, what is measured of the solutions, and what the figure draws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, initial, metrics, svm, tokens
from jaxattn.attention import Factored
from jaxattn.experiments.local.kq_limit import claims as kq_limit
from jaxattn.experiments.local.kq_limit import examples, figure, measure
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.settings import schedule
from tests.instances import T, d, drawn_lines, n
from tests.recorded import problem_of, recorded

KEY = jax.random.key(0)
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
FALLS, STANDS, EDGE = examples.FALLS, examples.STANDS, examples.EDGE


def judged(datasets):
    summaries = kq_limit.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in kq_limit.CLAIMS}


@pytest.mark.parametrize(
    ("changed", "direction", "balance"),
    [
        ({}, CORRECTED, CORRECTED),
        ({"published": FALLS}, HOLDS, CORRECTED),
        ({"published": EDGE}, OPEN, CORRECTED),
        ({"falls": STANDS}, FAILS, CORRECTED),
        # What is refuted stays so where a correction is not established.
        ({"falls": 0.1 * examples.STEPS**-0.12}, FAILS, CORRECTED),
        # The clock is ||W||, which a step that falls makes longer like k, a constant one like k^2.
        ({"falls": 0.1 * examples.STEPS**-0.25}, CORRECTED, CORRECTED),
        ({"published": 0.1 * examples.STEPS**-0.05}, CORRECTED, CORRECTED),
        # Falling on is not enough where the margin stays behind.
        ({"margin": 0.985}, FAILS, CORRECTED),
        ({"margin": 0.9925}, CORRECTED, CORRECTED),
        ({"drift": 1.04}, CORRECTED, HOLDS),
        ({"drift": 1.05}, CORRECTED, OPEN),
        ({"balance": 1.3}, CORRECTED, CORRECTED),
        ({"joint": 1.06}, CORRECTED, FAILS),
    ],
)
def test_the_verdicts_follow_the_runs(changed, direction, balance):
    _, found = judged(examples.runs(**changed))
    assert found["direction"].verdict is direction, [*map(str, found["direction"].corrected)]
    assert found["balance"].verdict is balance, [*map(str, found["balance"].corrected)]


def test_the_figure_draws_each_rule_and_the_exponents_that_are_judged():
    summaries = kq_limit.summarize(examples.runs(), KEY)
    distance, margin, exponent = figure.draw(summaries).axes
    published = next(one for one in summaries.values() if one.attrs["step_size"] == 0.1)
    for axes, name in ((distance, "off"), (margin, "margin_ratio")):
        curves = drawn_lines(axes)
        assert len(curves) == 7
        values = published[name] if name == "off" else 1 - published[name]
        np.testing.assert_allclose(curves[-1], [published["snapshot"], values])
    drawn = [points[0, 0] for points in drawn_lines(exponent, least=1) if points.shape[1] == 1]
    worst = [max(float(one["power"]) for one in runs) for step in kq_limit.STEPS for runs in _by_norm(summaries, step)]
    np.testing.assert_allclose(drawn, [float(published["power"]), *worst])


def _by_norm(summaries, step):
    for norm in kq_limit.NORMS:
        yield [one for one in kq_limit.chosen(summaries, optimizer=norm, step=step) if one.attrs["step_size"] != 0.1]


@pytest.mark.parametrize(
    ("changed", "title"),
    [
        ({}, "as published: stalls; decreasing steps: falls on"),
        ({"published": EDGE}, "as published: open; decreasing steps: falls on"),
        ({"published": FALLS, "falls": STANDS}, "as published: falls on; decreasing steps: stalls"),
    ],
)
def test_the_figure_says_which_steps_stall(changed, title):
    drawn = figure.draw(kq_limit.summarize(examples.runs(**changed), KEY))
    assert drawn.axes[2].get_title() == f"(c) {title}"
    assert "gd" not in drawn.get_supxlabel()


def test_every_length_of_the_step_counts():
    runs = dict(examples.runs())
    other = examples.runs(falls=STANDS)
    for run, one in other.items():
        if one.attrs["step"] == "relative" and one.attrs["step_size"] == 3.0 and "jointly" in run:
            runs[run] = one
    assert judged(runs)[1]["direction"].verdict is FAILS


def test_the_correction_is_made_from_the_numbers():
    note = judged(examples.runs())[1]["direction"].note
    assert "1 - cos keeps falling and ends between 5e-05 and 5e-05, and the margin ratio ends at 0.9990 or more" in note
    assert "by a factor of 1.3, and the distance stalls: 1 - cos goes from 0.006 at step 2131 to 0.006" in note
    # The exponents do not go with what the seeds are drawn with; Fisher's interval is of the number of seeds.
    assert kq_limit._ranks(np.arange(30.0), np.arange(30.0) ** 3).startswith("1.00 [1.00, 1.00]")
    assert kq_limit._ranks(np.arange(30.0), np.resize([-1.0, 1.0, 1.0, -1.0], 30)) != ""


def without(runs, **attrs):
    return {run: one for run, one in runs.items() if any(one.attrs[name] != value for name, value in attrs.items())}


@pytest.mark.slow
def test_runs_that_are_missing_short_or_of_few_seeds_decide_nothing():
    runs = examples.runs()
    for missing in ({"step_size": 0.1}, {"step": "relative", "optimizer": "jointly_normalized_gd"}):
        found = judged(without(runs, **missing))[1]
        assert {one.verdict for one in found.values()} == {OPEN}
        assert "is missing" in found["direction"].note
    short = {run: one.assign_attrs(steps=99_999) for run, one in runs.items()}
    assert all("fewer than 100000 steps" in one.note for one in judged(short)[1].values())
    few = {run: one.assign_attrs(kept=19) for run, one in runs.items()}
    assert all("19 kept seeds" in one.note for one in judged(few)[1].values())
    runs = dict(runs)
    runs["none"] = next(iter(runs.values())).isel(seed=slice(0))
    with pytest.raises(ValueError, match="expected a kept seed in each run, found none in"):
        kq_limit.summarize(runs, KEY)


@pytest.mark.slow
def test_a_run_is_measured_with_how_clear_cut_its_solution_is(tmp_path):
    law, start = functools.partial(data.sphere, n=n, T=T, d=d), functools.partial(initial.factored, m=d)
    rule = descent.falling(descent.exact_normalized_gd(1.0, penalty=0.0))
    inner = {"_target_": "jaxattn.descent.exact_normalized_gd", "step_size": 1.0, "floor": 0.0, "penalty": 0.0}
    config = {"optimizer": {"_target_": "jaxattn.descent.falling", "optimizer": inner}, "weights": {}, "steps": 50}
    size = {"seeds": 5, "steps": 50, "snapshots": schedule.Logarithmically(2), "record_every": 10}
    record = recorded(tmp_path, law, start, rule, config, **size)
    one = measure.measure(record)
    assert one.attrs["run"].startswith("KQ, exact_normalized_gd, falling step 1, floor 0")
    assert (one.attrs["step"], one.attrs["step_size"]) == ("falling", 1.0)
    assert not_a_number({"KQ": one}) == ""
    for seed in one["seed"].values:
        problem = problem_of(record, seed)
        end = Factored(*(jnp.asarray(record[name].values[seed]) for name in "KQ"))
        constraints = svm.token_constraints(problem, tokens.selected(end, problem))
        solution = svm.solve(constraints, norm="nuclear")
        values = np.linalg.svd(svm.combination(constraints, solution.duals), compute_uv=False)
        rank = int(metrics.rank(solution.W))
        room = 1 - values[rank] if rank < d else 1.0
        np.testing.assert_allclose(one["room"].sel(seed=seed), room, atol=1e-6)
        rows = np.asarray(solution.duals / solution.duals.max() + svm.margins(constraints, solution.W)) - 1
        np.testing.assert_allclose(one["complementarity"].sel(seed=seed), max(rows.min(), 0), atol=1e-5)
    made = next(iter(examples.runs().values()))
    assert {name: made[name].dims for name in made.variables} == {name: one[name].dims for name in made.variables}
    empty = measure.measure(record.assign(K=record["K"] * np.nan))
    assert empty.sizes["seed"] == 0
    assert empty["room"].shape == (0,)
