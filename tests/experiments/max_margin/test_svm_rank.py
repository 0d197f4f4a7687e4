"""Ranks in both conventions, the verdicts on datasets built by hand, and what the figure draws."""

import jax
import numpy as np
import pytest
from matplotlib.text import Annotation

from jaxattn.experiments.max_margin.svm_rank import claims as svm_rank
from jaxattn.experiments.max_margin.svm_rank import figure
from jaxattn.experiments.max_margin.svm_rank.examples import DIMENSIONS, NORMS, SIZES, WIDTH, as_published
from jaxattn.experiments.max_margin.svm_rank.examples import runs as datasets
from jaxattn.study.claims import Verdict
from jaxattn.svm import Status
from tests.instances import drawn_lines

KEY = jax.random.key(0)
OPEN, HOLDS, CORRECTED, FAILS = Verdict.OPEN, Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS
ALL = [HOLDS, CORRECTED, FAILS]


def judgements(found):
    summaries = svm_rank.summarize(found, KEY)
    assert [claim.id for claim in svm_rank.CLAIMS] == [
        f"svm-rank:{name}" for name in ("frobenius", "nuclear", "small-d")
    ]
    return [claim.judge(summaries) for claim in svm_rank.CLAIMS]


def verdicts(found):
    return [judged.verdict for judged in judgements(found)]


def test_both_conventions_and_the_feasible_share_are_those_of_the_problems():
    summary = svm_rank.summarize(datasets(), KEY)["certified"]
    one = summary.sel(run="n=15 T=5", norm="nuclear")
    assert one["feasible"].values.tolist() == [0.5, 0.5, 1, 1, 1]
    assert one["rank"].values.tolist() == [1, 3, 4.5, 4.5, 4.5]
    assert one["published"].values.tolist() == [1, 2, 4.5, 4.5, 4.5]
    assert (one["rank_low"] < 4.5).values[2:].all()
    assert summary["kept"].sel(run="n=15 T=5").values.tolist() == [12, 12, 24, 24, 24]
    assert summary.attrs == {"attempted": 480, "kept": 384, "infeasible": 96, "unsolved": 0}


def test_the_published_count_is_absolute_and_the_certified_one_is_relative():
    # Noise of 1e-6 beside singular values of 2: below 1e-6 relative, above 1e-7 absolute.
    summary = svm_rank.summarize(datasets(noise=1e-6), KEY)["certified"]
    at = summary.sel(run="n=10 T=5", d=10, norm="nuclear")
    assert (float(at["rank"]), float(at["published"])) == (4.5, WIDTH)
    assert float(at["spread"]) == pytest.approx(WIDTH - 4.5)


def test_means_of_too_few_feasible_problems_are_not_estimated():
    summary = svm_rank.summarize(datasets(feasible=0.25), KEY)["certified"]
    assert np.isnan(summary["rank"].sel(d=[1, 3])).all()
    assert np.isfinite(summary["published"]).all()


def test_an_unsolved_problem_is_in_neither_mean():
    found = datasets()
    one = found["n=5 T=5"]
    one["status"].values[:12, 2, 1] = Status.NOT_CONVERGED
    one["rank"].values[:12, 2, 1] = one["singular_values"].values[:12, 2, 1] = 99
    at = svm_rank.summarize(found, KEY)["certified"].sel(run="n=5 T=5", d=10, norm="nuclear")
    assert (float(at["rank"]), float(at["published"]), int(at["kept"])) == (4.5, 4.5, 12)
    assert float(at["feasible"]) == 1  # The Frobenius solution proves that.


def test_ranks_as_measured_hold_with_their_correction():
    frobenius, nuclear, small = judgements(datasets())
    assert [frobenius.verdict, nuclear.verdict, small.verdict] == ALL
    assert "the gap is larger than published" in nuclear.note
    assert nuclear.expected == {"n=10 T=5 d=10": 9.1, "n=15 T=5 d=15": 13.9, "n=15 T=5 d=20": 14.9}
    assert nuclear.measured["n=15 T=5 d=20"] == 4.5
    # Of the six shared problems, at singular values of 1e-6 the published count is of all there are.
    assert nuclear.measured["n=10 T=5 d=10 by SCS, counted as published"] == 10
    assert small.measured["n=15 T=5 d=3, counted as published"] == 2
    assert small.measured["n=15 T=5 d=3, feasible problems"] == 3
    assert nuclear.counts["n=10 T=5 by SCS"] == {"attempted": 6, "kept": 0, "infeasible": 0, "unsolved": 6}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"nuclear": 20}, [HOLDS, FAILS, FAILS]),
        ({"frobenius": 2, "nuclear": 2}, [FAILS, CORRECTED, FAILS]),
        ({"frobenius": -1}, [FAILS, CORRECTED, FAILS]),
        ({"edge": 6, "seeds": 30}, [CORRECTED, CORRECTED, FAILS]),
        ({"short": 6, "seeds": 30}, [FAILS, CORRECTED, FAILS]),
        ({"noise": 1e-6}, [HOLDS, OPEN, FAILS]),
        ({"feasible": 1.0}, [HOLDS, CORRECTED, HOLDS]),
        ({"seeds": 19}, [OPEN, OPEN, OPEN]),
        ({"d": (1, 3, 10, 15)}, [OPEN, OPEN, OPEN]),
    ],
)
def test_each_claim_can_fail(changed, expected):
    assert verdicts(datasets(**changed)) == expected


def test_nuclear_ranks_as_published_would_hold():
    assert verdicts(as_published(seeds=100))[1] is HOLDS


@pytest.mark.parametrize(
    ("more", "verdict"),
    # The mean rises by more / 100; two standard errors of the difference are 0.09 at n = d = 10.
    [(0, HOLDS), (5, HOLDS), (-5, HOLDS), (-20, CORRECTED), (20, CORRECTED)],
)
def test_a_nuclear_rank_is_as_published_to_two_standard_errors_of_the_difference(more, verdict):
    found = as_published(seeds=100)
    ranks = np.full(100, 9) + (np.arange(100) < 10 + max(more, 0)) - (np.arange(100) >= 100 + min(more, 0))
    found["n=10 T=5"]["rank"].loc[{"d": 10, "norm": "nuclear"}] = ranks
    nuclear = judgements(found)[1]
    assert nuclear.verdict is verdict
    assert ("the ranks differ from the published ones" in nuclear.note) == (verdict is CORRECTED)


def test_one_size_where_the_nuclear_rank_is_higher_refutes_that_it_is_lower():
    found = datasets()
    ranks = found["n=5 T=10"]["rank"]
    ranks.loc[{"d": 15, "norm": "frobenius"}] = 4
    assert verdicts(found)[1] is FAILS  # Half of the nuclear ranks are 4, the others 5.
    ranks.loc[{"d": 15, "norm": "nuclear"}] = 4
    assert verdicts(found)[1] is CORRECTED
    ranks.values[0, 3, 1], ranks.values[1, 3, 1] = 5, 3
    assert verdicts(found)[1] is FAILS


def test_the_differences_are_of_the_same_problems():
    summary = svm_rank.summarize(datasets(), KEY)["certified"]
    at = summary.sel(run="n=15 T=5", d=15)
    assert float(at["difference"]) == 4.5 - 15
    apart = summary["apart"].sel(norm="frobenius")
    np.testing.assert_allclose(apart, (summary["published"] - summary["rank"]).sel(norm="frobenius"), atol=1e-12)
    # Where all are feasible the two are one, without any error; else as uncertain as the share of feasible problems.
    high = summary["apart_high"].sel(norm="frobenius")
    assert (high.sel(d=[10, 15, 20]) == 0).all()
    assert -2 < float(apart.sel(run="n=15 T=5", d=3)) < float(high.sel(run="n=15 T=5", d=3)) < -0.5


@pytest.mark.parametrize(("first", "feasible", "verdict"), [(0.5, 1.0, HOLDS), (1.0, 0.9, OPEN), (1.0, 0.5, FAILS)])
def test_a_published_count_is_a_mean_rank_only_where_infeasible_problems_have_that_rank(first, feasible, verdict):
    small = judgements(datasets(first=first, feasible=feasible))[2]
    assert small.verdict is verdict
    assert small.measured
    assert ("differ most at n=5 T=5 d=3" in small.note) == (feasible < 1)


def test_a_certified_run_is_needed():
    with pytest.raises(ValueError, match="expected a run of this package's solvers, found"):
        svm_rank.summarize({"n=10 T=5 by SCS": datasets()["n=10 T=5 by SCS"]}, KEY)


def test_the_curves_are_of_the_problems_that_both_solved():
    found = datasets()
    found["n=10 T=5"]["status"].values[0, 2] = Status.NOT_CONVERGED
    found["n=10 T=5"]["singular_values"].values[0, 2] = 1.0
    curves = svm_rank.summarize(found, KEY)["SCS"]
    certified, inexact = (curves.sel(solver=name)["rank"].values[0] for name in ("certified", "SCS"))
    tolerance = curves["tolerance"].values
    np.testing.assert_allclose(certified, 4.6)  # Seeds 1 to 5: ranks 5, 4, 5, 4, 5.
    np.testing.assert_allclose(inexact, np.where(tolerance < 5e-7, 10, 4.6))
    np.testing.assert_allclose(curves["published"].values[0], [4.6, 10])
    np.testing.assert_allclose(curves["threshold"], 5e-8)


def test_the_figure_draws_the_means_and_counts_what_is_left_out():
    summaries = svm_rank.summarize(datasets(), KEY)
    drawn = figure.draw(summaries)
    panels = drawn.axes
    assert [panel.get_title()[:3] for panel in panels] == ["(a)", "(b)", "(c)", "(d)"]
    certified = summaries["certified"]
    for panel, sizes in ((0, SIZES[:3]), (1, (SIZES[0], SIZES[3]))):
        curves = drawn_lines(panels[panel], least=len(DIMENSIONS))
        expected = [
            np.array([certified["d"], certified["rank"].sel(run=f"n={n} T={T}", norm=norm)])
            for n, T in sizes
            for norm in NORMS
        ]
        np.testing.assert_array_equal(curves, expected)
    np.testing.assert_array_equal([y for _, y in drawn_lines(panels[2])], certified["feasible"].values)
    assert panels[2].get_title() == "(c) all feasible from $d = 10$"
    np.testing.assert_array_equal([y for _, y in drawn_lines(panels[3])[:2]], summaries["SCS"]["rank"].values[0])
    text = drawn.get_supxlabel()
    assert "384 of 480 problems kept (excluded: 96 infeasible)" in text
    assert "(d): 6 of the problems, solved by SCS as well; its solutions are not exact (0 pass the" in text
    assert panels[3].get_title() == "(d) $n = 10$: the published count is 10.0 by SCS, 4.5 certified"


def test_the_figure_says_how_far_the_printed_ranks_are_from_the_certified_ones():
    drawn = figure.draw(svm_rank.summarize(datasets(), KEY))
    assert drawn.axes[0].get_title() == "(a) $T = 5$: nuclear rank printed 9.1, 13.9, 14.9; certified 4.5, 4.5, 4.5"
    ends = [(one.xyann, one.xy) for one in drawn.axes[0].texts if isinstance(one, Annotation)]
    assert ends == [((10, 9.1), (10, 4.5)), ((15, 13.9), (15, 4.5)), ((20, 14.9), (20, 4.5))]
    assert drawn.axes[1].get_title().endswith("the nuclear rank is the lower one")
    high = figure.draw(svm_rank.summarize(datasets(nuclear=WIDTH), KEY))
    assert high.axes[1].get_title().endswith("the nuclear rank is not always the lower one")
