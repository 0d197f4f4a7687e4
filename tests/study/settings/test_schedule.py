"""After which steps a run keeps its weights."""

import numpy as np
import pytest

from jaxattn.study.settings import schedule


def test_a_schedule_has_whole_steps_up_to_the_last():
    assert schedule.Evenly(3)(10) == (3, 6, 9)
    assert schedule.Logarithmically(1)(1000) == (1, 10, 100, 1000)
    assert schedule.Logarithmically(20)(12)[-1] == 12
    assert np.all(np.diff(schedule.Logarithmically(20)(12)) > 0)
    assert schedule.Logarithmically(4)(1) == (1,)
    assert schedule.never(10) == ()


def test_intervals_that_fit_no_run_are_refused():
    with pytest.raises(ValueError, match=r"snapshots\.every: expected at least 1, found 0"):
        schedule.Evenly(0)
    with pytest.raises(ValueError, match=r"snapshots\.every: expected at most steps = 5, found 6"):
        schedule.Evenly(6)(5)
    with pytest.raises(ValueError, match=r"snapshots\.a_decade: expected at least 1, found 0"):
        schedule.Logarithmically(0)
