"""The lemma: what is measured of matrices built by hand, verdicts both ways, and what the figure draws."""

import jax
import numpy as np
import pytest

from jaxattn.experiments.max_margin.low_rank_lemma import claims as low_rank
from jaxattn.experiments.max_margin.low_rank_lemma import figure
from jaxattn.experiments.max_margin.low_rank_lemma.examples import NORMS, runs
from jaxattn.study.claims import Verdict
from tests.instances import drawn_lines

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


def test_the_figure_draws_every_kept_problem():
    summaries = summarized({"beyond": 1e-3}, {"unsolved": 1})[0]
    drawn = figure.draw(summaries)
    spectra, outside = drawn.axes
    expected = [
        np.median(one["singular_values"].sel(norm=norm), axis=0) for one in summaries.values() for norm in NORMS
    ]
    for (_, drawn_values), values in zip(drawn_lines(spectra, least=3), expected, strict=True):
        np.testing.assert_allclose(drawn_values, values, rtol=1e-12, atol=1e-15)
    points = [np.asarray(dots.get_offsets())[:, 1] for dots in outside.collections]
    kept = [one["outside"].sel(norm=norm).values for one in summaries.values() for norm in NORMS]
    for found, values in zip(points, kept, strict=True):
        np.testing.assert_allclose(found, np.maximum(values, 1e-18))
    assert "n=2 T=3 by CLARABEL: 2 of 3 problems kept (excluded: 1 unsolved)" in drawn.get_supxlabel()
