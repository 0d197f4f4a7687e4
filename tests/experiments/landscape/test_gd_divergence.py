"""Plain descent under equal scores: what is measured of a record, and verdicts on datasets built by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, losses, metrics, svm, tokens
from jaxattn.descent import smoothness
from jaxattn.experiments.landscape.gd_divergence import claims, figure, measure
from jaxattn.experiments.landscape.gd_divergence.examples import GROWTH, OFF, STEPS, run, runs, short
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import schedule
from tests.instances import T, d, drawn_lines, n
from tests.recorded import problem_of, recorded

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    law = partial(data.spread_scores, n=n, T=T, d=d, spread=0.0)
    path, config = tmp_path_factory.mktemp("runs"), {"optimizer": {"step_size": 0.5}, "record_every": 100}
    rule, kept = descent.gd(0.5), schedule.Logarithmically(2)
    return recorded(path, law, optimizer=rule, config=config, seeds=5, steps=400, snapshots=kept, record_every=100)


@pytest.mark.slow
def test_a_run_is_held_against_the_solutions_of_its_optimal_tokens(record):
    one = measure.measure(record)
    assert one.attrs["run"] == "step 0.5"
    assert one.attrs["kept"] == one.sizes["seed"] == 5
    assert np.all(one["bend"] < one["bound"])
    for seed in range(5):
        problem = problem_of(record, seed)
        solution = svm.solve(svm.token_constraints(problem, tokens.optimal(problem)))
        last = jnp.asarray(record["W_snapshots"].values[seed, -1])
        np.testing.assert_allclose(one["off"][seed, -1], 1 - metrics.correlation(last, solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["growth"][seed, -1], metrics.norm(last) / metrics.norm(solution.W), rtol=1e-9)
        np.testing.assert_allclose(one["bound"][seed], smoothness.bound(problem))
        curvature = jax.hessian(losses.risk)(last, problem).reshape(d * d, d * d)
        np.testing.assert_allclose(one["bend"][seed, -1], np.linalg.norm(curvature, 2), rtol=0.02)


def judged(datasets):
    summaries = claims.summarize(datasets, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


def verdict(datasets, name):
    return judged(datasets)[1][name].verdict


@pytest.mark.parametrize(
    ("second", "name", "expected"),
    [
        ({}, "norm", Verdict.HOLDS),
        ({"growth": STEPS**0.25}, "norm", Verdict.FAILS),
        ({"growth": np.minimum(GROWTH, 6.0)}, "norm", Verdict.FAILS),
        ({"growth": 1.07 * GROWTH}, "norm", Verdict.HOLDS),
        ({"growth": 1.13 * GROWTH}, "norm", Verdict.FAILS),
        ({"growth": 1.1 * GROWTH}, "norm", Verdict.OPEN),
        ({"growth": 0.9 * GROWTH}, "norm", Verdict.OPEN),
        ({}, "direction", Verdict.HOLDS),
        ({"off": 0.1 + 0 * OFF}, "direction", Verdict.FAILS),
        ({"off": 0.5 / GROWTH**1.1}, "direction", Verdict.HOLDS),
        ({"off": 0.5 / GROWTH**0.9}, "direction", Verdict.FAILS),
        # Seeds may select their tokens later. One of 1000 may stand still; of 30 seeds one may not; 25 are too many.
        ({"optimal": 5}, "direction", Verdict.HOLDS),
        ({"stuck": 1}, "direction", Verdict.HOLDS),
        ({"stuck": 1, "seeds": 30}, "direction", Verdict.OPEN),
        ({"stuck": 25}, "direction", Verdict.FAILS),
        ({}, "step", Verdict.HOLDS),
        # The claim is of the smallest step: larger ones may raise the risk.
        ({"loss": (1.0, 1.5, 0.4)}, "step", Verdict.HOLDS),
        # No second derivative may be above L = 15, whatever the step.
        ({"bend": 14.9}, "step", Verdict.HOLDS),
        ({"bend": 15.1}, "step", Verdict.FAILS),
    ],
)
def test_verdicts_follow_from_what_was_measured(second, name, expected):
    assert verdict(runs(second=second), name) is expected


def test_within_the_bound_some_seeds_may_still_be_on_their_way():
    found = judged(runs({"optimal": 28}))[1]["direction"]
    assert found.verdict is Verdict.HOLDS
    assert "at the end: 2 (step 0.05), 0 (step 5)" in found.note


def test_a_rise_of_the_risk_refutes_the_lemma_and_a_step_beyond_the_bound_says_nothing():
    assert verdict({"first": run(0.05, every=1, loss=(1.0, 1.1))}, "step") is Verdict.FAILS
    assert verdict({"first": run(0.05, every=1, loss=(1.0, 1.0 + 1e-13))}, "step") is Verdict.HOLDS
    for loss in ((1.0, 1.1), (1.0, 0.9)):
        found = judged({"first": run(0.07, every=1, loss=loss)})[1]["step"]
        assert found.verdict is Verdict.OPEN
        assert found.note.startswith("No run has a step of at most 1 / L; the smallest is 1.05 / L.")
    assert verdict({"first": run(0.07, every=1, bend=15.1)}, "step") is Verdict.FAILS


def test_never_is_judged_on_every_step():
    found = judged({"first": run(0.05)})[1]["step"]
    assert found.verdict is Verdict.OPEN
    assert "every step" in found.note
    assert judged(runs())[1]["step"].measured["number of steps of all seeds, step 0.05, every step"] == 60


def test_short_runs_and_few_seeds_decide_nothing():
    few = {name: one.assign_attrs(kept=19) for name, one in runs().items()}
    for datasets in (short(), few):
        assert {one.verdict for one in judged(datasets)[1].values()} == {Verdict.OPEN}


def test_a_run_without_seeds_and_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        judged({name: one.isel(seed=slice(0)) for name, one in runs().items()})
    with pytest.raises(ValueError, match="growth, off: expected positive numbers"):
        judged(runs({"off": -OFF}))


def test_the_note_says_how_far_both_runs_are_at_equal_times():
    # A hundred times the step, so that the second run is at this time at step 1000.
    note = judged(runs(second={"growth": np.log(1 + 100 * STEPS)}))[1]["norm"].note
    assert "At time 5000 (step size times steps), ||W|| / ||W_mm|| is 11.5 (step 0.05) and 11.5 (step 5)." in note
    assert "At time" not in judged({"first": run(0.05)})[1]["norm"].note


def test_the_slope_is_that_of_each_seeds_own_line():
    found = judged(runs())[1]["norm"]
    for label, mean in found.measured.items():
        low, high = found.interval[label]
        assert low < mean < high
        assert mean == pytest.approx(1, abs=0.02)


def test_the_figure_draws_both_runs_against_the_time():
    summaries = judged(runs())[0]
    drawn = figure.draw(summaries)
    for panel, name in zip(drawn.axes, ("growth", "off"), strict=True):
        curves = drawn_lines(panel, least=len(STEPS))
        for (x, y), one in zip(curves, ("step 5", "step 0.05"), strict=True):
            np.testing.assert_allclose(x, summaries[one].attrs["step_size"] * STEPS)
            np.testing.assert_array_equal(y, summaries[one][name])
        texts = [one.get_text() for one in panel.texts]
        assert texts[:2] == ["$\\eta = 5$ ($75 / L$)", "$\\eta = 0.05$ ($0.75 / L$)"]
        # Both runs are seen from the first step of the larger one on.
        assert panel.get_xlim()[0] == 5


def test_the_figures_titles_are_the_trends_of_the_furthest_run():
    summaries = judged(runs(second={"growth": 0.7 * GROWTH, "off": 0.02 * GROWTH}))[0]
    drawn = figure.draw(summaries)
    slope, power, off = (float(summaries["step 5"][name].values.flat[-1]) for name in ("slope", "exponent", "off"))
    left, right = (panel.get_title() for panel in drawn.axes)
    assert left == f"(a) the norm grows like {slope:.2f} log $k$ (theorem: log $k$)"
    assert power > 0
    assert right == f"(b) 1 - cos does not fall: it grows like $\\|W\\|^{{{power:.1f}}}$, to {off:.2g} at the end"
    assert "falls like" in figure.draw(judged(runs())[0]).axes[1].get_title()


def test_the_figures_note_counts_seeds_and_steps():
    summaries = judged(runs(first={"loss": (1.0, 1.1, 0.4)}, second={"stuck": 3}))[0]
    text = figure.draw(summaries).get_supxlabel()
    assert "$\\eta = 5$: 1,000 seeds, all kept." in text
    assert "in which 997 of 1,000 seeds come nearer to $W_F$" in text
    assert "Within $1/L$ the risk rises in 30 of 60 steps." in text
    beyond = {name: one for name, one in runs().items() if one.attrs["every"] > 1}
    assert "risk" not in figure.draw(judged(beyond)[0]).get_supxlabel()
