"""Descent on texts against soft margin and the limit of several tokens: measured, judged, drawn."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from jaxattn import descent, language, losses, svm
from jaxattn.experiments.language import text_solutions
from jaxattn.experiments.language.lm_cosine import claims, figure
from jaxattn.experiments.language.lm_cosine.examples import STEPS, made
from jaxattn.experiments.language.lm_cosine.measure import measure
from jaxattn.study.claims import Verdict, not_a_number
from jaxattn.study.settings import texts
from jaxattn.study.settings.schedule import Logarithmically
from tests.experiments.language.text_records import drawn_record
from tests.instances import drawn_lines

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def record():
    """Some trained texts, with and without conflicts."""
    return drawn_record(steps=300, seeds=6)


@pytest.mark.slow
def test_the_texts_are_solved_and_told_apart(record):
    found = text_solutions.solutions(record)
    assert found.counts == {"attempted": 6, "kept": 6, "diverged": 0, "unsolved": 0}
    for seed, feasible in enumerate(found.feasible):
        text = texts.choices_of({str(name): record[name].values[seed] for name in record.data_vars})
        pairs = set(zip(text.last.tolist(), text.next.tolist(), strict=True))
        conflict = len(pairs) > len(set(text.last.tolist()))
        # In so many dimensions nothing but a conflict keeps words from being separated.
        assert feasible == (not conflict)
        assert found.mixed[seed] == conflict
    assert 0 < found.feasible.sum() < 6


def test_a_text_that_diverged_is_counted(record):
    broken = record.copy(deep=True)
    broken["pairs"][2] = np.inf
    found = text_solutions.solutions(broken)
    assert found.counts == {"attempted": 6, "kept": 5, "diverged": 1, "unsolved": 0}
    assert found.kept.tolist() == [True, True, False, True, True, True]


def test_correlations_are_those_of_the_matrices(record):
    measured = measure(record)
    assert measured.attrs["run"] == "m=4 n=4 d=7"
    found = text_solutions.solutions(record)
    for seed in range(6):
        E, pairs = found.texts.E[seed], record["pairs_snapshots"].values[seed, -1]
        W = E.T @ pairs.T @ E
        soft = found.soft.W[seed]
        cosine = np.sum(W * soft) / np.linalg.norm(W) / np.linalg.norm(soft)
        assert measured["soft"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
        limit = np.asarray(svm.with_finite_part(*map(jnp.asarray, (W, found.finite.W[seed], found.sets.W[seed]))))
        cosine = np.sum(W * limit) / np.linalg.norm(W) / np.linalg.norm(limit)
        assert measured["mixed"].values[seed, -1] == pytest.approx(1 - cosine, abs=1e-12)
    # Small duals: a unit of shortfall costs more than it saves.
    assert float(measured["apart"].max()) < 1e-6


def summarized(*sizes):
    summaries = claims.summarize({one.attrs["run"]: one for one in sizes}, KEY)
    return summaries, {claim.id.partition(":")[2]: claim.judge(summaries) for claim in claims.CLAIMS}


@pytest.mark.slow
def test_texts_without_the_limit_of_several_tokens_are_marked_and_hold_a_number():
    # In two dimensions words that follow one word cannot be kept level, or only by W = 0, which has no direction.
    record = drawn_record(steps=100, seeds=4, d=2)
    measured = measure(record)
    assert not_a_number({"one": measured}) == ""
    assert measured["feasible"].values.tolist() == [True, False, False, False]
    assert not measured["has_mixed"].values.any()
    np.testing.assert_array_equal(measured["mixed"][1:], 0.0)
    assert np.all(measured["mixed"][0] > 0)
    # What stands there is not read.
    changed = measured.assign(mixed=measured["mixed"] + 0.5)
    summaries = [claims.summarize({"one": one}, KEY)["one"] for one in (measured, changed)]
    xarray.testing.assert_identical(*summaries)
    assert summaries[0].attrs["without_mixed"] == 3


HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("changes", "feasible", "conflict", "mixed"),
    [
        ({}, HOLDS, CORRECTED, HOLDS),
        ({"soft_1": 1e-4, "mixed": 1e-5}, HOLDS, HOLDS, HOLDS),
        # Each kind of texts is judged by itself.
        ({"soft_0": 0.05}, CORRECTED, CORRECTED, HOLDS),
        ({"soft_0": 0.3, "soft_1": 0.3}, FAILS, FAILS, HOLDS),
        ({"soft_1": 0.28, "mixed": 0.06}, HOLDS, FAILS, HOLDS),
        # At the end from the start: nothing rises.
        ({"mixed": 0.01, "fall": 0.0}, FAILS, FAILS, FAILS),
        # As near to both, or at the threshold, the intervals do not decide.
        ({"mixed": 0.05}, HOLDS, CORRECTED, OPEN),
        ({"soft_0": 1e-3}, OPEN, CORRECTED, HOLDS),
        ({"soft_0": 0.9e-3}, HOLDS, CORRECTED, HOLDS),
        ({"soft_0": 1.1e-3}, CORRECTED, CORRECTED, HOLDS),
        ({"soft_1": 1e-3, "mixed": 1e-5}, HOLDS, OPEN, HOLDS),
        # Less than 8 texts of a kind in every size.
        ({"seeds": 14}, OPEN, OPEN, OPEN),
        ({"steps": STEPS[:-3]}, OPEN, OPEN, OPEN),
        ({"seeds": 6}, OPEN, OPEN, OPEN),
    ],
)
def test_the_verdicts_follow_the_measurement(changes, feasible, conflict, mixed):
    _, judged = summarized(made(**changes), made(m=20, **changes))
    found = tuple(judged[name].verdict for name in ("feasible", "conflict", "mixed"))
    assert found == (feasible, conflict, mixed)


def test_the_correction_says_how_far_the_texts_on_their_way_are():
    summaries, judged = summarized(made(), made(m=20))
    lowest, highest = (
        choose(float(one[f"soft_1_{edge}"][-1]) for one in summaries.values())
        for choose, edge in ((min, "low"), (max, "high"))
    )
    assert f"1 - cos is between {lowest:.2g} and {highest:.2g}, by the intervals" in judged["conflict"].note


def test_means_are_over_all_texts_and_five_of_them_stand_beside():
    one = made()
    summaries, judged = summarized(one)
    (summary,) = summaries.values()
    np.testing.assert_allclose(summary["soft"], 1 - one["soft"].mean("seed"))
    np.testing.assert_allclose(summary["five"], 1 - one["soft"][:5].mean("seed"))
    np.testing.assert_allclose(np.log(summary["mixed_1"]), np.log(one["mixed"].values[12:]).mean(axis=0))
    for name, kind in (("feasible", "with"), ("conflict", "without")):
        assert judged[name].measured[f"share of texts {kind} a hard solution, m=10 n=5 d=100"] == 0.5


def test_the_figure_has_a_column_a_size_and_marks_kinds_with_few_texts():
    others = [made(m=20, seeds=14), made(m=10).assign_attrs(d=10, run="m=10 n=5 d=10")]
    summaries, _ = summarized(made(), *others)
    drawn = figure.draw(summaries)
    assert len(drawn.axes) == 6
    curves = [len(drawn_lines(panel, least=len(STEPS))) for panel in drawn.axes]
    assert curves == [2, 1, 2, 0, 0, 0]
    # Every size has a point a kind; the first and the last are made alike.
    ends = {float(one["soft_0"][-1]) for one in summaries.values()}
    points = [[y[0] for _, y in drawn_lines(panel, least=1)] for panel in drawn.axes[3:]]
    assert [sum(end in of_panel for end in ends) for of_panel in points] == [2, 1, 1]
    assert [text.get_text() for text in drawn.axes[3].texts] == ["7 texts"] * 3
    assert "At m=20 n=5 d=100 only 7 texts have one." in drawn.get_supxlabel()


def test_a_setting_that_cannot_be_trained_is_named():
    def setting(**changes):
        given = {
            "law": lambda key: language.of_text(np.eye(3), [[0, 1, 2]]),
            "optimizer": descent.normalized_gd(0.1),
            "loss": losses.cross_entropy,
            "seeds": 2,
            "key": 0,
            "steps": 20,
            "snapshots": Logarithmically(1),
        }
        return texts.TextTraining(**given | changes)

    assert setting().coordinates["snapshot"].tolist() == [1, 4, 20]
    with pytest.raises(ValueError, match="seeds: expected at least 1, found 0"):
        setting(seeds=0)
    with pytest.raises(TypeError, match="data: expected a law of texts such as language, found one of dict"):
        setting(law=lambda key: {"E": key})
    with pytest.raises(ValueError, match="snapshots: expected at least one, found none"):
        setting(snapshots=lambda steps: ())
    assert json.dumps(sorted(setting().descent)) == '["loss", "optimizer", "record_every", "snapshots", "steps"]'
