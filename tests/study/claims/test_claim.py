"""Judgements, whose verdicts follow from their criteria alone, and the line of claims.json."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxattn.study.claims import (
    Claim,
    Judgement,
    Number,
    Outcome,
    Setting,
    Source,
    Verdict,
    above,
    agrees,
    between,
    line,
    together,
)

MET, BROKEN, UNCLEAR = Outcome.MET, Outcome.BROKEN, Outcome.UNCLEAR
HOLDS, CORRECTED, FAILS, OPEN = Verdict.HOLDS, Verdict.CORRECTED, Verdict.FAILS, Verdict.OPEN
COUNTS = {"attempted": 11, "kept": 8, "diverged": 1, "infeasible": 2, "unsolved": 0}
OF_OUTCOME = {
    MET: [above("a", Number.exact(1), 0.5), between("b", Number(1, 0.9, 1.1), 0, 2), agrees("c", 1.0, 0.1, 1.1, 1.0)],
    BROKEN: [
        above("a", Number.exact(0), 0.5),
        between("b", Number(3, 2.9, 3.1), 0, 2),
        agrees("c", 1.0, 0.1, 2.0, 1.0),
    ],
    UNCLEAR: [above("a", Number(1, 0, 2), 0.5), above("b", Number.exact(math.nan), 0), agrees("c", 1.0, 0.9, 1.1, 1.0)],
}
CRITERIA = st.sampled_from([criterion for some in OF_OUTCOME.values() for criterion in some])
SOME = st.lists(CRITERIA, min_size=1, max_size=4).map(tuple)


def judged(stated, corrected=(), undecided="", remark="", **numbers):
    fields = {"numbers": {}, "expected": {}, "counts": {}} | numbers
    correction = "only so." if corrected else ""
    return Judgement(
        **fields, stated=stated, corrected=corrected, correction=correction, undecided=undecided, remark=remark
    )


@pytest.mark.parametrize(("stated", "corrected"), [*itertools.product(Outcome, [None, *Outcome])])
def test_the_verdict_follows_from_the_criteria(stated, corrected):
    expected = {
        MET: dict.fromkeys([None, *Outcome], HOLDS),
        UNCLEAR: dict.fromkeys([None, *Outcome], OPEN),
        BROKEN: {None: FAILS, BROKEN: FAILS, UNCLEAR: FAILS, MET: CORRECTED},
    }[stated][corrected]
    for one, other in itertools.product(OF_OUTCOME[stated], OF_OUTCOME[corrected] if corrected else [None]):
        found = judged((one,), (other,) if other else ())
        assert found.verdict is expected
        assert judged(found.stated, found.corrected, undecided="Too few.").verdict is OPEN


@given(SOME, st.just(()) | SOME)
def test_a_verdict_is_never_given_without_positive_evidence(stated, corrected):
    found = judged(stated, corrected).verdict
    if found is HOLDS:
        assert all(one.outcome is MET for one in stated)
    if found is CORRECTED:
        assert all(one.outcome is MET for one in corrected)
    if found in (CORRECTED, FAILS):
        assert any(one.outcome is BROKEN for one in stated)
    if found is FAILS and corrected:
        assert any(one.outcome is not MET for one in corrected)


def test_a_correction_that_is_not_decided_is_said_beside_the_refutation():
    found = judged(OF_OUTCOME[BROKEN][:1], OF_OUTCOME[UNCLEAR][:1], remark="As measured.")
    assert found.note == "Whether a correction holds is not decided: only so. As measured."


@given(SOME, st.just(()) | SOME)
def test_turned_thresholds_turn_the_verdict(stated, corrected):
    one = judged(stated, corrected)
    if one.verdict is HOLDS:
        for k in range(len(stated)):
            changed = (*stated[:k], stated[k].turned(), *stated[k + 1 :])
            assert dataclasses.replace(one, stated=changed).verdict is not HOLDS
    elif together(stated) is BROKEN:
        changed = tuple(each.turned() if each.outcome is BROKEN else each for each in stated)
        clear = all(each.outcome is not UNCLEAR for each in stated)
        assert dataclasses.replace(one, stated=changed).verdict is (HOLDS if clear else OPEN)


@given(SOME, st.just(()) | SOME, st.randoms())
def test_the_order_of_criteria_does_not_matter(stated, corrected, random):
    shuffled, others = (tuple(random.sample(some, len(some))) for some in (stated, corrected))
    assert judged(shuffled, others).verdict is judged(stated, corrected).verdict


def test_a_judgement_without_what_is_asked_for_is_refused():
    (met, *_), nothing = OF_OUTCOME[MET], ({}, {}, {})
    with pytest.raises(ValueError, match="stated: expected at least one criterion, found none"):
        judged(())
    with pytest.raises(ValueError, match="correction: expected a sentence and criteria for it, or neither"):
        Judgement(*nothing, stated=(met,), corrected=(met,))
    with pytest.raises(ValueError, match="correction: expected a sentence and criteria for it, or neither"):
        Judgement(*nothing, stated=(met,), correction="only so.")


def test_the_note_says_why():
    met, broken, unclear = (OF_OUTCOME[outcome][0] for outcome in (MET, BROKEN, UNCLEAR))
    assert judged((broken,), (met,), remark="It is 3.").note == "Correction: only so. It is 3."
    assert judged((broken,), (met,)).note == "Correction: only so."
    for stated, corrected in ((met, met), (broken, broken), (unclear, met)):
        assert judged((stated,), (corrected,), remark="It is 3.").note == "It is 3."
    assert judged((met,), undecided="Too few.", remark="It is 3.").note == "Too few."
    assert judged((met,)).note == ""


def test_data_that_cannot_be_judged_are_left_undecided_for_a_reason():
    withheld = Judgement.withheld("There is no run.")
    assert (withheld.verdict, withheld.note) == (OPEN, "There is no run.")
    assert dataclasses.replace(withheld, undecided="").verdict is OPEN


def test_a_line_of_claims_json_has_every_field_and_numbers_of_six_digits():
    met, broken, _ = (OF_OUTCOME[outcome][0] for outcome in (MET, BROKEN, UNCLEAR))
    found = judged(
        (met, broken),
        (met,),
        numbers={"x": Number(np.float64(123456.789), 1 / 3, 2 / 3), "y": 1e-9 / 3, "z": Number.exact(2.0)},
        expected={"x": 1.0},
        counts={"W": COUNTS},
    )
    claim = Claim("name:a", Source("paper", "figure 1", Setting.PROXY), "It is so.", lambda _: found, dict)
    one = json.loads(json.dumps(line(claim, found)))
    assert list(one) == [
        *("id", "source", "setting", "kind", "statement", "expected", "measured", "interval", "counts"),
        *("criteria", "criteria in numbers", "criteria of the correction", "criteria of the correction in numbers"),
        *("intervals", "verdict", "note"),
    ]
    assert (one["id"], one["counts"], one["verdict"]) == ("name:a", {"W": COUNTS}, "holds with a correction")
    assert (one["source"], one["setting"], one["statement"]) == ("paper, figure 1", "proxy", "It is so.")
    assert one["measured"] == {"x": 123457.0, "y": 3.33333e-10, "z": 2.0}
    assert one["interval"] == {"x": [0.333333, 0.666667]}
    assert one["criteria"] == [str(met), str(broken)]
    assert one["criteria of the correction"] == [str(met)]
    assert one["criteria in numbers"] == [met.numbers, broken.numbers]
    assert one["criteria of the correction in numbers"] == [met.numbers]
    assert one["note"] == "Correction: only so."


def test_a_criterion_in_numbers_has_null_for_what_is_not_finite_and_six_digits_in_a_line():
    third = between("a third", Number(1 / 3, 0.3, 0.4), 0, 1)
    unknown = above("b", Number(math.nan, -math.inf, math.inf), 2)
    claim = Claim("name:a", Source("paper", "figure 1", Setting.EXACT), "It is so.", judged, dict)
    written = json.dumps(line(claim, judged((third, unknown))), allow_nan=False)
    assert json.loads(written)["criteria in numbers"] == [
        {"quantity": "a third", "mean": 0.333333, "low": 0.3, "high": 0.4, "least": 0, "most": 1, "outcome": "met"},
        {"quantity": "b", "mean": None, "low": None, "high": None, "least": 2, "most": None, "outcome": "unclear"},
    ]


def test_a_claim_knows_its_experiment():
    source = Source("paper", "figure 1", Setting.EXACT)
    assert Claim("name:a", source, "It is so.", judged, dict).experiment == "name"
    assert Claim("name", source, "It is so.", judged, dict).experiment == "name"
