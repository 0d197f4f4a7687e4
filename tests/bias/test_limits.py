"""Limits of planted curves: each law has its own, and what cannot be told has a wide range."""

import numpy as np
import pytest

from jaxattn.bias.limits import extrapolated, window

STEPS = np.array([100, 178, 316, 562, 1000, 1778, 3162, 5623, 10000])


def read(curve, size=STEPS, steps=STEPS):
    """The limit of one quantity in one seed."""
    found = extrapolated(np.asarray(curve)[None, None], np.asarray(size, float)[None], steps)
    assert found is not None
    return tuple(float(part[0, 0]) for part in found[:3])


@pytest.mark.parametrize("end", [1.0, 0.93])
@pytest.mark.parametrize(
    "miss",
    [
        0.3 * (STEPS / 100.0) ** -1.0,
        0.1 * (STEPS / 100.0) ** -0.5,
        2.0 / STEPS + 30.0 / STEPS**2,
        -0.05 * (STEPS / 100.0) ** -0.5,
        np.zeros(9),
        # Steps of changing size, or noise.
        0.002 * np.resize([1.0, -1.0], 9),
    ],
)
def test_the_limit_of_a_power_is_its_own(miss, end):
    value, low, high = read(end - miss)
    assert low <= value <= high
    assert low - 1e-9 <= end <= high + 1e-9
    assert high - low < 0.03


def test_a_logarithm_of_the_steps_is_a_power_of_the_norm():
    """Gradient descent of constant step: the norm grows like the logarithm."""
    size = np.log(STEPS)
    value, low, high = read(1 - 0.4 / size, size)
    assert value == pytest.approx(1)
    assert 0.999 < low <= high < 1.001
    # Against the steps themselves the same curve looks as if it ended elsewhere.
    assert read(1 - 0.4 / size)[0] < 0.98


def test_two_powers_together_are_known_less_well_than_one():
    both, single = 1 - 0.2 * (STEPS / 100.0) ** -0.5 - 2.0 * (STEPS / 100.0) ** -2.0, 1 - 0.2 * (STEPS / 100.0) ** -0.5
    value, low, high = read(both)
    assert low <= 1.0 <= high
    assert abs(value - 1) < 0.02
    assert high - low > 3 * (read(single)[2] - read(single)[1])


def test_the_steps_that_would_tell_are_those_that_tell():
    """A curve that ends at 1 and one that ends at .96, both still between their ends and the threshold."""
    steps = np.unique(np.round(10 ** np.arange(1, 8.01, 0.125)).astype(int))
    miss = 0.3 * (steps / 100.0) ** -0.5 + 0.4 * (steps / 100.0) ** -1.0
    curves = np.stack([1 - miss, 0.9599 - 0.3 * miss])[:, None]

    def until(last):
        found = extrapolated(curves[:, :, :last], np.tile(steps[:last].astype(float), (2, 1)), steps[:last])
        assert found is not None
        return found

    early = until(20)
    for share in (0.5, 1.0):
        told = next(last for last in range(20, len(steps)) if until(last).longer(0, 0.97, share) == 1)
        # A lower bound, since the slowest power is excluded all at once, and no more than ten times too low.
        assert 1 < early.longer(0, 0.97, share) < steps[told - 1] / steps[19] < 10 * early.longer(0, 0.97, share)
    # Half as fast takes the square.
    fast, slow = (early._replace(rate=np.full((2, 1), rate)).longer(0, 0.97, 1.0) for rate in (1.0, 0.5))
    assert slow == pytest.approx(fast**2)
    # What does not approach its limit needs more than any number of steps.
    assert early._replace(rate=np.zeros((2, 1))).longer(0, 0.97, 1.0) == np.inf


def test_what_turns_late_has_a_wide_range():
    late = np.where(STEPS < 4000, 0.5, 0.9)
    _, low, high = read(late)
    assert high - low > 0.5
    # Both later snapshots are tried, and all powers that miss them as badly as the best one count.
    assert read(np.r_[np.full(7, 0.9), 0.8, 0.7])[1] < 0


def test_powers_that_miss_later_snapshots_do_not_count():
    nearly = 1 - 0.3 * (STEPS / 100.0) ** -1.0 + 1e-5 * np.resize([1.0, -1.0], 9)
    _, low, high = read(nearly)
    assert high - low < 0.001


def test_what_rises_throughout_does_not_end_below_its_last_value():
    steps = STEPS[[4, 6, 8]]
    rising = np.array([0.5, 0.95, 0.98])
    assert read(rising, steps, steps)[1] == 0.98
    assert read(1 - rising, steps, steps)[2] == pytest.approx(0.02)
    # With one step back that is no longer said.
    assert read(np.array([0.5, 0.99, 0.98]), steps, steps)[1] < 0.98


def test_weights_that_do_not_grow_have_no_limit_of_a_direction():
    sizes = np.array([np.full(9, 3.0), 3.0 + 0.001 * STEPS])
    values = np.full((2, 1, 9), 0.8)
    found = extrapolated(values, sizes, STEPS)
    assert found is not None
    assert found.grows.tolist() == [False, True]
    assert (found.low[0, 0], found.high[0, 0]) == (-np.inf, np.inf)
    np.testing.assert_allclose([found.value[:, 0], [found.value[0, 0], found.low[1, 0]]], 0.8)


def test_earlier_snapshots_of_one_norm_give_a_range_too():
    """As of a run that did not move between two of them; a line through them has no slope of its own."""
    value, low, high = read([0.5, 0.5, 0.8, 0.9], np.array([10, 10, 40, 80]), STEPS[-4:])
    assert value >= 0.9
    assert low <= value <= high < np.inf


def test_limits_are_read_off_the_last_half_decade_or_four_snapshots_of_the_last_decade():
    assert STEPS[window(STEPS)].tolist() == [1778, 3162, 5623, 10000]
    assert window(np.array([0, 1, 10, 30, 100])).tolist() == [2, 3, 4]
    assert window(np.arange(1, 1001)).tolist() == list(range(316, 1000))
    assert extrapolated(np.ones((1, 1, 2)), np.ones((1, 2)), np.array([50, 100])) is None
    assert extrapolated(np.ones((1, 1, 3)), np.ones((1, 3)), np.array([5, 50, 100])) is None
