"""Margins along descent on texts: measured, counted in bins, judged, drawn."""

import re

import jax
import numpy as np
import pytest
from matplotlib.patches import StepPatch

from jaxattn import language
from jaxattn.experiments.language.lm_margins import claims, figure
from jaxattn.experiments.language.lm_margins.examples import STEPS, made
from jaxattn.experiments.language.lm_margins.measure import measure
from jaxattn.study.claims import Verdict
from jaxattn.study.settings import texts
from tests.experiments.language.text_records import drawn_record

KEY = jax.random.key(0)


@pytest.mark.slow
def test_margins_are_those_of_the_matrices():
    record = drawn_record(steps=300, seeds=6)
    measured = measure(record)
    assert measured["snapshot"].values.tolist() == [1, 10, 96, 300]
    compact = language.compact(texts.choices_of({str(name): record[name].values for name in record.data_vars}))
    place = record["snapshot"].values.tolist().index(96)
    for seed in range(6):
        E, pairs = compact.E[seed], record["pairs_snapshots"].values[seed, place]
        S = E @ (E.T @ pairs.T @ E).T @ E.T
        for i, (last, following, weight) in enumerate(
            zip(compact.last[seed], compact.next[seed], compact.weight[seed], strict=True)
        ):
            others = measured["others"].values[seed, i]
            assert others.sum() == (4 if weight else 0)
            found = measured["margins"].values[seed, 2, i][others]
            np.testing.assert_allclose(found, (S[last, following] - S[last])[others], atol=1e-12)
            # Two words that follow one word are told from one another in both directions.
            nexts = {int(b) for a, b, w in zip(*(leaf[seed] for leaf in compact[1:4]), strict=True) if w and a == last}
            expected = {b for b in nexts if b != following} if weight else set()
            assert set(np.flatnonzero(measured["follows"].values[seed, i])) == expected
    assert 0 < int(measured["feasible"].sum()) < 6


def summarized(**changes):
    summaries = claims.summarize({"texts": made(**changes)}, KEY)
    return summaries, claims.CLAIMS[0].judge(summaries)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.CORRECTED),
        ({"end": (50.0, 50.0, 50.0)}, Verdict.HOLDS),
        ({"end": (3.0, 50.0, 0.0)}, Verdict.FAILS),
        ({"end": (50.0, -1.0, 0.0)}, Verdict.FAILS),
        ({"start": 3.0}, Verdict.FAILS),
        # At a threshold the interval does not decide; what contested words refute stays refuted.
        ({"end": (5.0, 50.0, 50.0)}, Verdict.OPEN),
        ({"end": (5.0, 50.0, 0.0)}, Verdict.FAILS),
        ({"end": (4.8, 50.0, 0.0)}, Verdict.FAILS),
        ({"end": (5.2, 50.0, 0.0)}, Verdict.CORRECTED),
        ({"end": (50.0, 50.0, 5.0)}, Verdict.OPEN),
        ({"start": 1.0}, Verdict.FAILS),
        # Less than 8 texts of each kind.
        ({"seeds": 14}, Verdict.OPEN),
        ({"steps": STEPS // 20 + 1}, Verdict.OPEN),
        ({"seeds": 6}, Verdict.OPEN),
    ],
)
def test_the_verdict_follows_the_margins(changes, verdict):
    assert summarized(**changes)[1].verdict is verdict


def test_every_margin_is_in_a_bin_as_often_as_its_prefix_stands():
    summaries, judgement = summarized()
    summary = summaries["texts"]
    # 12 texts of each kind; a prefix of weight 2 and one of weight 1, with two margins each.
    np.testing.assert_array_equal(summary["count"].sum("bin"), np.broadcast_to([72, 36, 36], (3, 3)))
    assert judgement.measured["share of positive margins at step 10000, no conflict"] == 1
    assert abs(judgement.measured["median margin at step 10000, conflict: words that also follow"]) < 0.1
    assert summary.attrs["no_conflict"] == 12


def test_without_conflicts_there_is_one_kind():
    one = made()
    one["feasible"][:] = True
    one["follows"][:] = False
    summaries = claims.summarize({"texts": one}, KEY)
    judgement = claims.CLAIMS[0].judge(summaries)
    assert judgement.verdict is Verdict.FAILS  # Half of the margins end at 0.
    assert not [label for label in judgement.measured if "conflict: " in label]
    assert len(figure.draw(summaries).axes) == 3


def test_the_correction_says_where_the_other_margins_end():
    note = summarized()[1].note
    assert note.startswith("Correction: except for margins between two words that follow the same word in one text.")
    assert re.search(r"Their median ends at -?0\.0\d+, and [45]\d% are positive", note)


def test_another_number_of_runs_is_refused():
    with pytest.raises(ValueError, match=r"lm-margins: expected one run, found \['one', 'two'\]"):
        claims.summarize({"one": made(), "two": made()}, KEY)


def test_the_figure_has_a_row_a_kind_and_a_histogram_a_step():
    summaries, _ = summarized()
    drawn = figure.draw(summaries)
    ends = [
        "0% not positive",
        "0% not positive",
        f"{float(summaries['texts']['not_positive'][-1, 2]):.0%} not positive",
    ]
    for panel, end in zip(drawn.axes, ends, strict=True):
        assert panel.get_title().endswith(f"{end} at the end")
        steps = [patch.get_data() for patch in panel.patches if isinstance(patch, StepPatch) and not patch.get_fill()]
        assert len(steps) == len(STEPS)
        # All steps have the same bins, so one axis shows them all.
        for values, edges, _ in steps:
            assert np.sum(values) == pytest.approx(1)
            np.testing.assert_array_equal(edges, summaries["texts"]["edges"])
    assert "12 of the kept texts have no conflict" in drawn.get_supxlabel()


def test_the_share_in_a_title_counts_a_margin_as_often_as_its_prefix_stands():
    one = made(seeds=2)
    # In the text with a conflict the margin of the prefix of weight 2 is negative, that of weight 1 positive.
    one["margins"].values[1, -1, 0, 2], one["margins"].values[1, -1, 1, 1] = -1.0, 1.0
    summary = claims.summarize({"texts": one}, KEY)["texts"]
    assert float(summary["not_positive"][-1, 2]) == pytest.approx(2 / 3)
