"""The theorem's condition: verdicts on datasets built by hand, and what the figure draws."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.feasibility import claims as feasibility
from jaxattn.experiments.max_margin.feasibility import figure
from jaxattn.experiments.max_margin.feasibility.examples import DIMENSIONS, SIZES, runs
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests.instances import drawn_lines

KEY = jax.random.key(0)


def summarized(changes=(), seeds=24):
    """Summaries and the judgement, with single problems changed: (run, seed, d, status) each."""
    summaries = feasibility.summarize(runs(changes, seeds), KEY)
    (claim,) = feasibility.CLAIMS
    assert claim.id == "feasibility:theorem"
    return summaries, claim.judge(summaries)


@pytest.mark.parametrize(
    ("changes", "seeds", "verdict"),
    [
        ([], 24, Verdict.HOLDS),
        ([("n=4 T=5", 3, 4, Status.INFEASIBLE)], 24, Verdict.FAILS),
        ([("n=4 T=5", 3, 3, Status.INFEASIBLE)], 24, Verdict.HOLDS),
        ([("n=2 T=5", 3, 4, Status.INFEASIBLE)], 24, Verdict.FAILS),
        ([("n=2 T=5", 3, 4, Status.NOT_CONVERGED)], 24, Verdict.OPEN),
        ([("n=2 T=5", 3, 3, Status.NOT_CONVERGED)], 24, Verdict.HOLDS),
        ([], 19, Verdict.OPEN),
        ([("n=2 T=2", 0, 6, Status.INFEASIBLE)], 19, Verdict.FAILS),
    ],
)
def test_the_theorem_holds_only_if_every_problem_it_covers_is_certified_feasible(changes, seeds, verdict):
    assert summarized(changes, seeds)[1].verdict is verdict


def test_a_solution_that_violates_its_constraints_is_no_evidence():
    found = runs()
    found["n=4 T=5"]["violation"].values[3, 4] = 1e-8
    judged = feasibility.CLAIMS[0].judge(feasibility.summarize(found, KEY))
    assert [one.outcome for one in judged.stated] == ["met", "broken"]
    assert judged.verdict is Verdict.FAILS
    found["n=4 T=5"]["violation"].values[3, 4] = 1e-10
    assert feasibility.CLAIMS[0].judge(feasibility.summarize(found, KEY)).verdict is Verdict.HOLDS
    found["n=4 T=5"]["violation"].values[3, 4] = -1e-16
    with pytest.raises(ValueError, match=r"^n=4 T=5, violation: expected nothing below 0, found 1"):
        feasibility.summarize(found, KEY)


def test_what_is_open_is_told_from_what_is_refuted_in_the_share():
    share = summarized([("n=2 T=5", 3, 4, Status.NOT_CONVERGED), ("n=2 T=5", 4, 4, Status.NOT_CONVERGED)])[1].stated[0]
    assert share.outcome == "unclear"
    assert share.value.high == 1
    assert share.value.low == pytest.approx(1 - 2 / (24 * (5 + 3 + 3 + 3)))
    refuted = summarized([("n=2 T=5", 3, 4, Status.NOT_CONVERGED), ("n=2 T=5", 4, 4, Status.INFEASIBLE)])[1]
    assert refuted.verdict is Verdict.FAILS
    assert refuted.note == "1 of 336 problems at d >= max(T - 1, n) are certified infeasible."


def test_without_a_problem_that_the_theorem_covers_nothing_is_decided():
    few = {run: one.isel(d=slice(1)) for run, one in runs().items()}
    judged = feasibility.CLAIMS[0].judge(feasibility.summarize(few, KEY))
    assert judged.verdict is Verdict.OPEN
    assert judged.note == "No problem was drawn at d >= max(T - 1, n)."
    assert (judged.expected, judged.interval) == ({}, {})


def test_shares_are_counted_with_their_intervals():
    summaries, claim = summarized([("n=4 T=5", 0, 1, Status.NOT_CONVERGED)])
    summary = summaries["random tokens"]
    assert summary["feasible"].sel(run="n=2 T=5").values.tolist() == [0.25, 1, 1, 1, 1, 1]
    assert summary["feasible"].sel(run="n=4 T=5").values.tolist() == [5 / 24, 1, 1, 1, 1, 1]
    assert summary["undecided"].sel(run="n=4 T=5").values.tolist() == [1, 0, 0, 0, 0, 0]
    assert summary.attrs == {"attempted": 576, "kept": 521, "infeasible": 54, "unsolved": 1}
    assert claim.expected == {f"n={n} T={T}, share at d >= {max(T - 1, n)}": 1.0 for n, T in SIZES}
    assert claim.measured["n=4 T=5, share at d >= 4"] == 1
    assert claim.measured["n=4 T=5, smallest d from which all are feasible"] == 2
    low, high = claim.interval["n=4 T=5, share at d >= 4"]  # Of 3 dimensions and 24 seeds.
    assert 0.94 < low < 0.96 < high == 1
    assert claim.counts["n=2 T=2"] == {"attempted": 144, "kept": 144, "infeasible": 0, "unsolved": 0}


def test_the_figure_draws_the_shares_and_where_the_theorem_holds():
    summaries = summarized([("n=4 T=5", 0, 1, Status.NOT_CONVERGED)])[0]
    drawn = figure.draw(summaries)
    assert [panel.get_title() for panel in drawn.axes] == [
        "(a) $T = 2$: all feasible from $d = 2$, promised from 4",
        "(b) $T = 5$: all feasible from $d = 2$, promised from 4",
    ]
    for panel, shown in zip(drawn.axes, (("n=2 T=2", "n=4 T=2"), ("n=2 T=5", "n=4 T=5")), strict=True):
        curves = [y for _, y in drawn_lines(panel, least=len(DIMENSIONS))]
        np.testing.assert_array_equal(curves, summaries["random tokens"]["feasible"].sel(run=list(shown)))
    bars = [x[0] for x, _ in drawn_lines(drawn.axes[1]) if len(x) == 2]
    assert bars == [4, 4]
    assert "521 with a certified solution, 54 certified infeasible, 1 unsolved" in drawn.get_supxlabel()


def test_the_figure_says_where_not_all_problems_are_feasible():
    drawn = figure.draw(summarized([("n=4 T=5", 0, 6, Status.INFEASIBLE)])[0])
    assert drawn.axes[1].get_title() == "(b) $T = 5$: not all feasible, promised from $d = 4$"
