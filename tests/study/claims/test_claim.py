"""Judgements, whose verdicts follow from their criteria alone, and the line of claims.json."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

from jaxattn.study.claims import (
    Claim,
    Judgement,
    Needs,
    Number,
    Outcome,
    Setting,
    Source,
    Verdict,
    above,
    agrees,
    below,
    between,
    claim,
    line,
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


def judged(stated, corrected=(), **more):
    return Judgement(stated, corrected, correction="only so." if corrected else "", **more)


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


def test_a_judgement_without_what_is_asked_for_is_refused():
    met = OF_OUTCOME[MET][0]
    with pytest.raises(ValueError, match="stated: expected at least one criterion, found none"):
        judged(())
    for corrected, correction in (((met,), ""), ((), "only so.")):
        with pytest.raises(ValueError, match="correction: expected a sentence and criteria for it, or neither"):
            Judgement((met,), corrected, correction)


def test_the_note_says_why():
    met, broken, unclear = (OF_OUTCOME[outcome][0] for outcome in (MET, BROKEN, UNCLEAR))
    undecided = judged((broken,), (unclear,), remark="As measured.")
    assert undecided.note == "Whether a correction holds is not decided: only so. As measured."
    assert judged((broken,), (met,), remark="It is 3.").note == "Correction: only so. It is 3."
    assert judged((broken,), (met,)).note == "Correction: only so."
    for stated, corrected in ((met, met), (broken, broken)):
        assert judged((stated,), (corrected,), remark="It is 3.").note == "It is 3."
    nearly = above("x", Number(1.5, 0.5, 2.5), 1.0)
    seeds = "With the same means, about 4 times as many seeds would decide."
    assert judged((nearly, met), (met,), remark="It is 3.").note == f"It is 3. {seeds}"
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
    one_claim = Claim("name:a", Source("paper", "figure 1", Setting.PROXY), "It is so.", lambda runs: found)
    one = json.loads(json.dumps(line(one_claim, found)))
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
    one_claim = Claim("name:a", Source("paper", "figure 1", Setting.EXACT), "It is so.", judged)
    written = json.dumps(line(one_claim, judged((third, unknown))), allow_nan=False)
    assert json.loads(written)["criteria in numbers"] == [
        {"quantity": "a third", "mean": 0.333333, "low": 0.3, "high": 0.4, "least": 0, "most": 1, "outcome": "met"},
        {"quantity": "b", "mean": None, "low": None, "high": None, "least": 2, "most": None, "outcome": "unclear"},
    ]


def summary(kept=20, steps=1000, **counts):
    return xarray.Dataset({"off": 0.1}, {"snapshot": [steps]}, {"attempted": 30, "kept": kept, "steps": steps} | counts)


def ruled(needs):
    @claim("name:a", Source("paper", "figure 1", Setting.EXACT), "It is so.", needs=needs)
    def rule(runs):
        return Judgement([below(f"off, {run}", Number.exact(float(runs[run]["off"])), 0.5) for run in ("W", "KQ")])

    return rule


def test_numbers_and_counts_are_those_of_the_criteria_and_of_the_runs_that_are_read():
    found = ruled(Needs(20)).judge({"other": summary(), "KQ": summary(), "W": summary(diverged=3)})
    assert found.verdict is HOLDS
    assert found.measured == {"off, W": 0.1, "off, KQ": 0.1}
    plain = {"attempted": 30, "kept": 20}
    assert found.counts == {"KQ": plain, "W": plain | {"diverged": 3}}


def test_a_missing_run_decides_nothing_and_is_named():
    found = ruled(Needs(20)).judge({"W": summary()})
    assert (found.verdict, found.note) == (OPEN, "The run 'KQ' is missing.")


@pytest.mark.parametrize(
    ("needs", "run", "named"),
    [
        (Needs(20), summary(kept=19), "KQ: 19 kept seeds are too few to decide; at least 20 are needed."),
        (Needs(8, 1001), summary(), "KQ: 1000 steps are too few to decide; at least 1001 are needed."),
        (Needs(8, 9, (200, 1000)), summary(), "KQ: no weights were kept at the steps [200] that"),
    ],
)
def test_a_run_that_lacks_what_the_claim_needs_decides_nothing(needs, run, named):
    enough = summary(99, 2000).assign_coords(snapshot=[200, 1000])
    found = ruled(needs).judge({"W": enough, "KQ": run})
    assert found.verdict is OPEN
    assert found.note.startswith(named)
    assert ruled(needs).judge({"W": enough, "KQ": enough}).verdict is HOLDS
