"""After which steps a run keeps its weights."""

import numpy as np

from jaxattn.study.settings import schedule


def test_a_schedule_has_whole_steps_up_to_the_last():
    assert schedule.Evenly(3)(10) == (3, 6, 9)
    assert schedule.Logarithmically(1)(1000) == (1, 10, 100, 1000)
    assert schedule.Logarithmically(20)(12)[-1] == 12
    assert np.all(np.diff(schedule.Logarithmically(20)(12)) > 0)
    assert schedule.Logarithmically(4)(1) == (1,)
    assert schedule.never(10) == ()
