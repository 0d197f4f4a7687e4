"""Local convergence: verdicts on the three panels, each number on its own, and what is drawn."""

import functools

import jax
import numpy as np
import pytest

from jaxattn import data, initial
from jaxattn.experiments.local.local_convergence import claims as local_convergence
from jaxattn.experiments.local.local_convergence import figure
from jaxattn.experiments.local.local_convergence.examples import COUNTS, NORMS, PUBLISHED, STEPS, runs
from jaxattn.experiments.local.local_convergence.measure import measure
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.measuring.growth import growth, lengths
from jaxattn.study.settings import schedule
from tests.instances import T, d, drawn_lines, n
from tests.recorded import recorded

KEY = jax.random.key(0)
OPEN, HOLDS, CORRECTED, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS


def judged(datasets):
    """The judgements on the panels a, b and c."""
    summaries = local_convergence.summarize(datasets, KEY)
    assert [claim.id for claim in local_convergence.CLAIMS] == [f"local-convergence:{panel}" for panel in "abc"]
    return [claim.judge(summaries) for claim in local_convergence.CLAIMS]


def changed(*changes, last=2000):
    return judged(runs(last, changes))


def test_local_convergence_as_published_holds_with_its_correction():
    a, b, c = changed(("KQ", "growth", ..., 0.0))
    assert [a.verdict, b.verdict, c.verdict] == [HOLDS, HOLDS, CORRECTED]
    assert [a.counts, b.counts, c.counts] == [{"W": COUNTS, "KQ": COUNTS}, {"W": COUNTS}, {"KQ": COUNTS}]
    means = {f"{run} at step {step}": mean for run in ("W", "KQ") for step, mean in ((200, 0.966), (2000, 0.99995))}
    assert a.measured == pytest.approx(means)
    rows = zip(NORMS, PUBLISHED, strict=True)
    published = {f"{norm} at step {STEPS[k]}": row[k] for norm, row in rows for k in range(5)}
    assert b.expected == published
    assert b.measured == pytest.approx(published)
    assert c.measured == pytest.approx({"frobenius at step 2000": 0.8, "nuclear at step 2000": 0.995})
    assert c.note.startswith("Correction: the correlation with the nuclear solution is 0.9950 at step 2000, but the")
    assert "The Frobenius correlation is 0.9950 at step 2000." in b.note


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (("W", "probability", 0, 0.97), 0),
        (("W", "probability", 5, 0.998), 0),
        (("KQ", "probability", 5, 0.998), 0),
        (("W", "correlation", (0, 2), 0.982), 1),
        (("W", "correlation", (1, 4), 0.864), 1),
        (("W", "correlation", (1, 5), 0.996), 1),
        (("KQ", "correlation", (1, 5), 0.989), 2),
        (("KQ", "correlation", (0, 5), 0.996), 2),
    ],
)
def test_one_mean_that_is_off_fails_its_panel_and_no_other(change, failing):
    for power in (0.0, 1.0):
        found = changed(change, ("W", "growth", ..., power), ("KQ", "growth", ..., power))
        assert [one.verdict is FAILS for one in found] == [k == failing for k in range(3)]


@pytest.mark.parametrize(
    ("power", "verdict"),
    [(1.0, HOLDS), (0.14, HOLDS), (0.06, HOLDS), (0.05, OPEN), (0.04, CORRECTED), (-1, CORRECTED)],
)
@pytest.mark.parametrize(("run", "panel"), [("W", 1), ("KQ", 2)])
def test_alignment_of_weights_at_rest_is_a_correction(run, panel, power, verdict):
    found = changed((run, "growth", ..., power))
    assert found[panel].verdict is verdict
    assert [one.verdict for k, one in enumerate(found) if k != panel] == [HOLDS, HOLDS]
    said = f"from step 1000 to 2000 it goes like k^{power:.2g}"
    assert (said in found[panel].note) == (verdict is CORRECTED)


def test_solutions_that_are_the_same_put_neither_ahead():
    found = changed(("KQ", "correlation", 0, 0.995), ("KQ", "correlation", 1, 0.995), ("W", "growth", ..., 1.0))
    assert [one.verdict for one in found] == [HOLDS, HOLDS, FAILS]


def test_a_run_of_less_than_1000_steps_decides_nothing():
    low = [(run, "correlation", slice(None), 0.2) for run in ("W", "KQ")]
    for one in changed(last=800) + changed(*low, last=800):
        assert one.verdict is OPEN
        assert "800 steps is too short" in one.note


def test_few_seeds_or_another_run_decide_nothing():
    few = {run: one.isel(seed=slice(7)).assign_attrs(kept=7) for run, one in runs().items()}
    assert ["7 kept seeds are too few" in one.note for one in judged(few)] == [True] * 3
    with pytest.raises(ValueError, match=r"expected the runs \['KQ', 'W'\], found \['W'\]"):
        local_convergence.summarize({"W": runs()["W"]}, KEY)
    none = runs()["W"].isel(seed=slice(0))
    with pytest.raises(ValueError, match="expected a kept seed in each run"):
        local_convergence.summarize({"W": none, "KQ": runs()["KQ"]}, KEY)


def test_the_figure_has_three_panels_and_the_counts():
    page = figure.draw(local_convergence.summarize(runs(), KEY))
    # Two curves each, and the published means: one in the first panel, one a norm in the second.
    assert [len(axes.get_lines()) for axes in page.axes] == [3, 4, 2]
    frobenius, _, published, _ = (y for _, y in drawn_lines(page.axes[1]))
    np.testing.assert_allclose(published, 1 - np.array([0.883, 0.960, 0.980, 0.988, 0.993]))
    np.testing.assert_allclose(frobenius[:5], published, atol=1e-9)
    titles = [axes.get_title() for axes in page.axes]
    assert "Frobenius SVM is nearest" in titles[1]
    assert "nuclear SVM is nearest" in titles[2]
    assert "20 of 23 seeds kept (excluded: 1 diverged, 2 infeasible)" in page.get_supxlabel()


@pytest.mark.slow
@pytest.mark.parametrize("run", ["W", "KQ"])
def test_the_examples_look_like_what_is_measured(tmp_path, run):
    weights = {"W": initial.free, "KQ": initial.factored}[run]
    record = recorded(
        tmp_path,
        functools.partial(data.sphere, n=n, T=T, d=d),
        weights,
        seeds=3,
        steps=40,
        snapshots=schedule.Evenly(10),
    )
    one, made = measure(record), runs()[run]
    assert not_a_number({run: one}) == ""
    assert one.attrs["kept"] == 3
    assert {name: made[name].dims for name in made.variables} == {name: one[name].dims for name in made.variables}
    assert all(made[name].dtype.kind == one[name].dtype.kind for name in made.variables)
    assert dict.fromkeys(made.attrs) == dict.fromkeys(one.attrs)
    assert growth(lengths(one), KEY)["until"] == 40
