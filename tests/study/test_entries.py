"""What is said of one claim: its numbers, criteria and counts, and whether the outcome of a criterion counts."""

import json

import pytest

from jaxattn.study.claims import Number, above, agrees, below
from jaxattn.study.configuration.names import root
from jaxattn.study.entries import against, entry, evidence, is_withheld
from tests.study.test_report import line

BROKEN, UNCLEAR, MET = above("x", Number(1, 0, 2), 3), above("y", Number(3, 2, 4), 3), above("z", Number(9, 8, 9), 3)
ROOMY, TIGHT = above("a", Number(9, 8, 10), 4), above("b", Number(3, 2, 4), 1.9)
UNKNOWN = above("x", Number.exact(float("nan")), 1)
LINES = json.loads((root() / "figures" / "claims.json").read_text())


def of(verdict, *criteria):
    numbers = [criterion.numbers for criterion in criteria]
    return line("first:a", verdict=verdict, criteria=[*map(str, criteria)]) | {"criteria in numbers": numbers}


def test_an_entry_has_statement_numbers_criteria_evidence_note_and_counts():
    text = "\n".join(entry(line("first:a", numbers=2, runs=2)))
    for part in (
        "What first:a states of \\|x\\|. (a paper; the paper's setting)",
        "| number 1 | 7 | 0.3333 |  |\n| number 0 |  | 0 | -0.5 to 0.25 |",
        "As stated:\n\n- the slope of first:a is 3 [2, 4]; asked for: at least 1 (met)",
        "As corrected:\n\n- \\|x\\| is 1; asked for: at most 2 (met)",
        "Strongest evidence against it: the slope of first:a is 3 [2, 4]; asked for: at least 1 (met with 100 % to",
        "\n\nThe rule of first:a.\n\n",
        "run 0: 2 of 5 kept, 3 diverged, 0 infeasible; run 1: 2 of 5 kept, 1 of them with a solution that is not",
    ):
        assert part in text


@pytest.mark.parametrize("criteria", [(BROKEN,), (MET,), (UNCLEAR, BROKEN, MET)])
def test_what_is_not_decided_for_a_reason_of_its_own_has_that_reason_and_criteria_that_do_not_count(criteria):
    withheld = of("not decided", *criteria)
    assert is_withheld(withheld)
    text = "\n".join(entry(withheld))
    assert "\n\nWhy it is not decided: The rule of first:a.\n\n" in text
    for criterion in criteria:
        assert f"- {criterion}"[:-1] + " so far)" in text
        assert str(criterion) not in text


@pytest.mark.parametrize(
    ("verdict", "criteria"), [("not decided", (UNCLEAR, MET)), ("holds", (MET,)), ("does not hold", (BROKEN, UNCLEAR))]
)
def test_in_all_other_claims_every_outcome_counts(verdict, criteria):
    judged = of(verdict, *criteria)
    assert not is_withheld(judged)
    text = "\n".join(entry(judged))
    assert "so far" not in text
    assert all(f"- {criterion}" in text for criterion in criteria)


def test_the_room_of_a_criterion_that_does_not_count_yet_is_said_so_far():
    assert evidence(of("not decided", MET)) == "z is 9 [8, 9]; asked for: at least 3 (met so far with 167 % to spare)"


def test_a_number_that_was_not_measured_is_not_known():
    assert evidence(of("not decided", UNKNOWN, MET)) == "x is not known; asked for: at least 1 (unclear)"
    assert evidence(of("not decided", UNKNOWN)) == "x is not known; asked for: at least 1 (unclear so far)"


def test_no_claim_of_the_repository_lists_a_broken_criterion_that_its_verdict_contradicts():
    undecided = [one for one in LINES if one["verdict"] == "not decided"]
    assert undecided
    assert not any("(broken)" in text for one in undecided for text in entry(one))


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        ([ROOMY, TIGHT], "b is 3 [2, 4]; asked for: at least 1.9 (met with 5.3 % to spare)"),
        ([ROOMY], "a is 9 [8, 10]; asked for: at least 4 (met with 100 % to spare)"),
        ([ROOMY, UNCLEAR, TIGHT], str(UNCLEAR)),
        ([UNCLEAR, BROKEN, ROOMY], str(BROKEN)),
        # A yes or no, and a count of 0, are at no distance from what is asked for.
        ([below("x", Number.exact(0), 0), ROOMY], "a is 9 [8, 10]; asked for: at least 4 (met with 100 % to spare)"),
        ([above("named (1: it is)", Number.exact(1), 1)], "named (1: it is) is 1; asked for: at least 1 (met)"),
        ([above("named (1: it is)", Number.exact(0), 1), BROKEN], str(BROKEN)),
        ([below("x", Number.exact(2), 2), ROOMY], "x is 2; asked for: at most 2 (met with 0 % to spare)"),
        # A tiny threshold stands for 0.
        ([above("x", Number(2, 1, 3), 1e-9)], "x is 2 [1, 3]; asked for: at least 1e-09 (met with 50 % to spare)"),
        ([below("x", Number.exact(4e-16), 1e-13)], "x is 4e-16; asked for: at most 1e-13 (met with 100 % to spare)"),
        ([UNKNOWN, UNCLEAR], str(UNCLEAR)),
        ([UNKNOWN, ROOMY], "x is nan [nan, nan]; asked for: at least 1 (unclear)"),
        ([agrees("x", 2.0, 0.1, 2.0, 0.5)], str(agrees("x", 2.0, 0.1, 2.0, 0.5))[:-1] + " with 43 % to spare)"),
    ],
)
def test_what_fails_comes_before_what_is_unclear_and_that_before_what_is_met(criteria, expected):
    assert against([str(one) for one in criteria], [one.numbers for one in criteria]) == expected


def test_the_room_is_that_of_the_numbers_and_not_of_the_rounded_text():
    near, nearer = above("a", Number(2, 1.00004, 3), 1), above("b", Number(2, 1.00003, 3), 1)
    found = against([str(near), str(nearer)], [near.numbers, nearer.numbers])
    assert found == "b is 2 [1, 3]; asked for: at least 1 (met with 0.003 % to spare)"


def test_every_claim_of_the_repository_has_evidence_against_it():
    found = [against(one["criteria"], one["criteria in numbers"]) for one in LINES]
    assert len(found) > 200
    assert all("; asked for: " in one for one in found)
    assert not any(" met with 0 % " in one or "e+02 %" in one for one in found)
