"""The lemma: what is measured of matrices built by hand, verdicts both ways, and the table."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.low_rank_lemma import claims as low_rank
from jaxattn.experiments.max_margin.low_rank_lemma.examples import runs
from jaxattn.experiments.max_margin.low_rank_lemma.table import table
from jaxattn.study.claims import Verdict

KEY = jax.random.key(0)


def summarized(own=None, witness=None):
    """Summaries and both judgements."""
    summaries = low_rank.summarize(runs(own, witness), KEY)
    assert [claim.id for claim in low_rank.CLAIMS] == ["low-rank-lemma:frobenius", "low-rank-lemma:nuclear"]
    return summaries, [claim.judge(summaries) for claim in low_rank.CLAIMS]


@pytest.mark.parametrize(
    ("own", "witness", "verdict"),
    [
        ({}, {}, Verdict.HOLDS),
        ({"beyond": 9e-14}, {}, Verdict.HOLDS),
        ({"beyond": 2e-13}, {}, Verdict.FAILS),
        ({"beyond": 1e-10}, {}, Verdict.FAILS),
        ({"outside": 1e-10}, {}, Verdict.FAILS),
        ({}, {"beyond": 1e-8, "outside": 1e-8}, Verdict.HOLDS),
        ({}, {"beyond": 1e-4}, Verdict.FAILS),
        ({}, {"outside": 1e-4}, Verdict.FAILS),
        ({}, {"unsolved": 3}, Verdict.OPEN),
        ({"seeds": 19}, {}, Verdict.OPEN),
        ({"unsolved": 5}, {}, Verdict.OPEN),
    ],
)
def test_the_lemma_holds_only_at_rounding_level_and_with_a_witness(own, witness, verdict):
    assert [judged.verdict for judged in summarized(own, witness)[1]] == [verdict, verdict]


def test_runs_that_cannot_be_the_lemmas_are_refused():
    found = runs()
    with pytest.raises(ValueError, match=r"expected one run of this package's solvers, found \[\]"):
        low_rank.summarize({"n=2 T=3 by CLARABEL": found["n=2 T=3 by CLARABEL"]}, KEY)
    found["n=2 T=3"]["singular_values"].values[0, 0, 0, 3] = -1e-17
    with pytest.raises(ValueError, match=r"^n=2 T=3, singular_values: expected nothing below 0, found 1"):
        low_rank.summarize(found, KEY)


def test_without_a_witness_nothing_is_decided():
    summaries = low_rank.summarize({"n=2 T=3": runs()["n=2 T=3"]}, KEY)
    for claim in low_rank.CLAIMS:
        judged = claim.judge(summaries)
        assert judged.verdict is Verdict.OPEN
        assert judged.note == "No solution by an external solver was certified."


def test_without_a_kept_problem_nothing_is_decided():
    for judged in summarized({"unsolved": 24})[1]:
        assert judged.verdict is Verdict.OPEN
        assert judged.note.startswith("0 kept seeds are too few")
        assert judged.interval == {}


def test_what_lies_beyond_rank_n_and_outside_the_span_is_measured():
    summaries, (frobenius, nuclear) = summarized({"beyond": 1e-3, "outside": 0.6}, {"unsolved": 1})
    own = summaries["n=2 T=3"]
    np.testing.assert_allclose(own["beyond"], 1e-3, rtol=1e-10)
    # Of two equal singular values one row leaves the span with 0.6 of its length; the third row is outside.
    np.testing.assert_allclose(own["outside"], np.sqrt((0.36 + 1e-6) / (2 + 1e-6)), rtol=1e-10)
    assert summaries["n=2 T=3 by CLARABEL"]["seed"].values.tolist() == [1, 2]
    assert frobenius.measured["sigma_3/sigma_1, d=5, largest"] == pytest.approx(1e-3)
    assert frobenius.measured["distance to the minimizer over ||W||_F, d=5, at most"] == pytest.approx(2e-8)
    assert "distance to the minimizer over ||W||_F, d=5, at most" not in nuclear.measured
    assert nuclear.measured["||W(I - P_Z)||_F/||W||_F, d=4, largest, by CLARABEL"] < 1e-15
    assert nuclear.counts["n=2 T=3 by CLARABEL"] == {"attempted": 3, "kept": 2, "infeasible": 0, "unsolved": 1}


def test_the_table_has_a_row_per_norm_and_solver_with_the_largest_of_the_kept_problems():
    summaries = summarized({"beyond": 1e-3, "outside": 0.6}, {"beyond": 2e-8, "unsolved": 1})[0]
    found = table(summaries)
    assert found.heads[4] == r"largest $\sigma_{3}/\sigma_1$"
    assert [row[:4] for row in found.rows] == [
        ("Frobenius SVM", "jaxattn", "5", "24 of 24"),
        ("Frobenius SVM", "CLARABEL", "4", "2 of 3"),
        ("nuclear SVM", "jaxattn", "5", "24 of 24"),
        ("nuclear SVM", "CLARABEL", "4", "2 of 3"),
    ]
    # Of two equal singular values one row leaves the span with 0.6 of its length.
    gap = r"$2\times10^{-16}$"
    assert found.rows[0][4:] == ("0.001", "0.4", gap, r"$1\times10^{-13}$")
    assert found.rows[1][4] == r"$2\times10^{-8}$"
    assert found.rows[1][6:] == (gap, r"$1\times10^{-6}$")


def test_the_largest_of_one_problem_is_in_its_row_alone():
    summaries = summarized()[0]
    before = table(summaries).rows
    summaries["n=2 T=3"]["beyond"].loc[{"seed": 7, "norm": "nuclear"}] = 0.25
    rows = table(summaries).rows
    assert rows[2][4] == "0.2"
    assert [row for k, row in enumerate(rows) if k != 2] == [row for k, row in enumerate(before) if k != 2]


def test_excluded_problems_are_counted_below_the_table_and_have_no_numbers():
    found = table(summarized({"unsolved": 1}, {"unsolved": 3})[0])
    assert found.note.endswith(
        "n=2 T=3: 23 of 24 problems kept (excluded: 1 unsolved). "
        "n=2 T=3 by CLARABEL: 0 of 3 problems kept (excluded: 3 unsolved)."
    )
    assert found.rows[1][3:] == ("0 of 3", "", "", "", r"$1\times10^{-6}$")
