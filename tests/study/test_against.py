"""The strongest evidence against a claim is read off its criteria."""

import json

import pytest

from jaxattn.study.against import against
from jaxattn.study.claims import Number, above, agrees, below, between
from jaxattn.study.configuration.names import root

ROOMY, TIGHT = above("a", Number(9, 8, 10), 4), above("b", Number(3, 2, 4), 1.9)
UNCLEAR, BROKEN = below("c", Number(3, 2, 4), 3), between("d", Number(9, 8, 10), 1, 2)
UNKNOWN = above("x", Number.exact(float("nan")), 1)


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
    lines = json.loads((root() / "figures" / "claims.json").read_text())
    found = [against(line["criteria"], line["criteria in numbers"]) for line in lines]
    assert len(found) > 200
    assert all("; asked for: " in one for one in found)
    assert not any(" met with 0 % " in one or "e+02 %" in one for one in found)
