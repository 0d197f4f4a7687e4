"""Criteria: met, broken or unclear by the whole interval; agreement with a published number."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from jaxattn.study.claims import Agreement, Criterion, Number, Outcome, above, agrees, below, between, together

MET, BROKEN, UNCLEAR = Outcome.MET, Outcome.BROKEN, Outcome.UNCLEAR
REALS = st.floats(-1e6, 1e6)
INFINITE = st.floats(allow_nan=False)


def ordered(values):
    low, mean, high = sorted(values)
    return Number(mean, low, high)


NUMBERS = st.lists(REALS, min_size=3, max_size=3).map(ordered)
BOUNDS = st.tuples(INFINITE, INFINITE).map(sorted)


@st.composite
def criteria(draw, kind=Criterion):
    least, most = draw(BOUNDS) if kind is Criterion else sorted((-draw(st.floats(0, 1e6)), draw(st.floats(0, 1e6))))
    return kind("it", draw(NUMBERS), least, most)


@pytest.mark.parametrize(
    ("outcome", "intervals"),
    [
        (MET, [(1.0, 2.0), (1.2, 1.8), (1.5, 1.5)]),
        (UNCLEAR, [(0.9, 1.5), (1.5, 2.1), (0.0, 3.0), (0.0, 1.0), (2.0, 3.0)]),
        (BROKEN, [(0.0, 0.999), (2.001, 3.0)]),
    ],
)
def test_the_whole_interval_has_to_lie_on_one_side(outcome, intervals):
    for low, high in intervals:
        value = Number((low + high) / 2, low, high)
        assert between("it", value, 1.0, 2.0).outcome is outcome
        assert between("it", Number(-value.mean, -high, -low), -2.0, -1.0).outcome is outcome


@given(criteria(), st.floats(0, 1))
def test_a_decided_outcome_is_that_of_every_number_in_the_interval(criterion, share):
    _, low, high = criterion.value
    inside = min(max(low + share * (high - low), low), high)
    of_one = Criterion("it", Number.exact(inside), criterion.least, criterion.most).outcome
    assert of_one is not UNCLEAR
    if criterion.outcome is not UNCLEAR:
        assert of_one is criterion.outcome


@given(criteria())
def test_an_unclear_outcome_is_one_on_which_numbers_of_the_interval_differ(criterion):
    _, low, high = criterion.value
    ends = [*(Number.exact(end) for end in (low, high))]
    # Where both ends are broken the allowed numbers lie between them.
    found = {Criterion("it", end, criterion.least, criterion.most).outcome for end in ends}
    between_them = low < criterion.least and criterion.most < high
    assert (criterion.outcome is UNCLEAR) == (found == {MET, BROKEN} or between_them)


@given(criteria() | criteria(Agreement), st.integers(0, 4))
@example(Criterion("it", Number(0, -1, 0.5), 1, 2), 1)
@example(Criterion("it", Number(3, 2.5, 4), 1, 2), 2)
@example(Criterion("it", Number(3, 2.5, 4), 1, 2), 3)
@example(Agreement("it", Number(3, 2.5, 4), -1, 1), 1)
def test_what_is_not_a_number_is_unclear(criterion, place):
    entries = [*criterion.value, criterion.least, criterion.most]
    entries[place] = math.nan
    broken = type(criterion)("it", Number(*entries[:3]), *entries[3:])
    assume(place < 3 or type(criterion) is Criterion or broken.value.low <= 0 <= broken.value.high)
    assert broken.outcome is UNCLEAR
    assert together([broken]) is UNCLEAR


@given(criteria(Agreement))
def test_numbers_agree_if_zero_is_inside_and_the_interval_is_narrow(agreement):
    _, low, high = agreement.value
    if not low <= 0 <= high:
        assert agreement.outcome is BROKEN
    else:
        narrow = agreement.least <= low and high <= agreement.most
        assert agreement.outcome is (MET if narrow else UNCLEAR)


@given(REALS, st.floats(0, 1e3), REALS, st.floats(0, 1e3))
def test_a_measurement_too_coarse_to_tell_agrees_with_nothing(mean, error, published, within):
    found = agrees("it", mean, error, published, within)
    half, off = 2 * math.sqrt(2) * error, mean - published
    assert found.value == pytest.approx((off, off - half, off + half), abs=1e-9)
    if found.outcome is MET:
        assert abs(off) + half <= within + 1e-9
    assert agrees("it", published, error + 2 * within + 1, published, within).outcome is UNCLEAR
    assert agrees("it", published, math.inf, published, within).outcome is UNCLEAR


@given(NUMBERS, NUMBERS)
def test_a_difference_is_as_uncertain_as_both_numbers_together(one, other):
    found, back = one.minus(other), other.minus(one)
    assert found == pytest.approx((-back.mean, -back.high, -back.low), abs=1e-6)
    assert found.low <= found.mean <= found.high
    assert found.mean - found.low >= max(one.mean - one.low, other.high - other.mean) * (1 - 1e-9) - 1e-6
    assert found.mean - found.low <= (one.mean - one.low) + (other.high - other.mean) + 1e-6
    assert one.minus(Number.exact(0)) == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize(("one", "other"), [*itertools.product(Outcome, repeat=2)])
def test_criteria_together_follow_three_valued_logic(one, other):
    values = {MET: Number.exact(1), BROKEN: Number.exact(-1), UNCLEAR: Number(0, -1, 1)}
    found = together([above("it", values[outcome], 0.5) for outcome in (one, other)])
    rank = [BROKEN, UNCLEAR, MET]
    assert found is rank[min(rank.index(one), rank.index(other))]


@given(st.lists(criteria(), min_size=1, max_size=6), st.randoms())
def test_the_order_and_the_number_of_equal_criteria_do_not_matter(some, random):
    shuffled = [*some, *some]
    random.shuffle(shuffled)
    assert together(shuffled) is together(some)
    # One more can only take away.
    rank = [BROKEN, UNCLEAR, MET]
    assert all(rank.index(together(some)) <= rank.index(one.outcome) for one in some)


def test_no_criteria_are_refused():
    with pytest.raises(ValueError, match="criteria: expected at least one, found none"):
        together([])


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        (
            above("the share", Number(0.5, 0.25, 0.75), 0.9),
            "the share is 0.5 [0.25, 0.75]; asked for: at least 0.9 (broken)",
        ),
        (below("the gap", Number.exact(1e-9), 1e-6), "the gap is 1e-09; asked for: at most 1e-06 (met)"),
        (between("p", Number(1, 0, 2), 1, 3), "p is 1 [0, 2]; asked for: between 1 and 3 (unclear)"),
        (Criterion("p", Number.exact(1)), "p is 1; asked for: any number (met)"),
        (
            agrees("p", 0.5, 0.0, 0.25, 0.5),
            "p, less the published 0.25, is 0.25; asked for: between -0.5 and 0.5 (broken)",
        ),
    ],
)
def test_a_criterion_says_its_number_and_what_is_asked_for(criterion, said):
    assert str(criterion) == said


@pytest.mark.parametrize(
    ("value", "bounds", "times"),
    [
        # Half the distance to a bound needs four times the seeds; a decided criterion none; a mean on it never decides.
        (Number(1.5, 0.5, 2.5), {"least": 1.0}, 4.0),
        (Number(0.5, -0.5, 2.5), {"least": 1.0}, 16.0),
        (Number(1.5, 0.5, 2.5), {"least": 1.0, "most": 2.0}, 4.0),
        (Number(1.5, 1.2, 2.5), {"least": 1.0}, 1.0),
        (Number(1.0, 0.5, 2.5), {"least": 1.0}, np.inf),
        (Number(np.nan, 0.5, 2.5), {"least": 1.0}, np.inf),
    ],
)
def test_how_many_times_as_many_seeds_would_decide(value, bounds, times):
    assert Criterion("x", value, **bounds).more_seeds == pytest.approx(times)
