"""Where weights stop that no longer grow is told for those that have a gradient in one matrix, and for no others."""

import dataclasses
import functools

import optax
import pytest
import xarray

from jaxattn import data, descent, heads, initial, losses, records
from jaxattn.study.measuring.ranked import ranked
from jaxattn.study.measuring.stopped import stopped
from jaxattn.study.settings import recording
from jaxattn.study.settings.training import Training
from tests.instances import T, d, n

STEP, STEPS = 0.05, 1000
LAW = functools.partial(data.sphere, n=n, T=T, d=d)


def found(folder, decay, start=initial.free_zero, step=STEP):
    rule = descent.ScaleFree(*optax.chain(descent.steepest("max", step), optax.add_decayed_weights(-step * decay)))
    kept = {"snapshots": lambda steps: (300, 400, 600, steps), "seeds": 8, "key": 1}
    setting = Training(LAW, start, rule, losses.logistic, heads.linear, steps=STEPS, **kept)
    recording.run(setting, folder / "record.zarr", {"config": "{}"})
    record = records.load(folder / "record.zarr")
    ranking = ranked(record, ["max"])
    return ranking, stopped(record, ranking, setting), setting


def test_weights_with_decay_stop_on_the_ball_of_their_norm(tmp_path):
    ranking, where, _ = found(tmp_path, decay=0.5)
    assert ranking.verdict.reason.startswith("no direction")
    assert where is not None
    assert where.norms == ("max",)
    assert where.text.startswith("no direction: the weights stopped growing at max norm 2.000, stationary on its ball")


def test_also_where_they_are_too_small_to_select_a_token(tmp_path):
    """The direction is not decided for another reason then, and longer runs would not help."""
    ranking, where, _ = found(tmp_path, decay=20.0, step=0.01)
    assert ranking.verdict.reason.startswith("not saturated")
    assert where is not None
    assert where.text.startswith("no direction: the weights stopped growing at max norm 0.050")


def test_weights_that_grow_or_stalled_are_not_asked(tmp_path):
    ranking, where, setting = found(tmp_path, decay=0.0)
    assert where is None
    still = ranking.size * 0 + 1
    lost = dataclasses.replace(ranking, size=still, stalled=still[:, 0] == 1)
    assert stopped(xarray.Dataset(), lost, setting) is None


@pytest.mark.slow
def test_of_factors_it_is_not_told_and_the_line_says_why(tmp_path):
    _, where, _ = found(tmp_path, decay=0.5, start=initial.factored)
    assert where is not None
    assert where.norms == ()
    assert where.text.startswith("not told: run: expected one of `models.plain` on W")
