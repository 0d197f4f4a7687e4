"""The second stage where the optimal tokens are asked for: which seeds are kept, and with which solution."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import Problem, data, descent, heads, initial, losses, records, svm, tokens
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import recording, schedule, training
from tests.instances import T, d, lane, n


def recorded(path):
    setting = training.Training(
        partial(data.spread_scores, n=n, T=T, d=d, spread=0.0),
        initial.free,
        descent.gd(0.5),
        losses.logistic,
        heads.linear,
        seeds=5,
        key=1,
        steps=20,
        snapshots=schedule.Logarithmically(2),
        record_every=10,
    )
    recording.run(setting, path, {})
    return records.load(path)


def of_seed(record, seed):
    return Problem(**{name: record[name].values[seed] for name in ("X", "Z", "Y", "v")})


def test_seeds_without_an_optimum_are_left_out_by_reason(tmp_path):
    record = recorded(tmp_path / "record.zarr")
    changed = record.copy(deep=True)
    changed["W"].values[1] = np.nan
    best = int(tokens.optimal(of_seed(record, 2))[0])
    changed["X"].values[2, 0, (best + 1) % T] = changed["X"].values[2, 0, best]
    found = optimum.optimum(changed)
    assert found.counts == {"attempted": 5, "kept": 3, "diverged": 1, "infeasible": 1, "unsolved": 0}
    assert found.kept.tolist() == [True, False, False, True, True]
    np.testing.assert_array_equal(found.problems.X, record["X"].values[[0, 3, 4]])
    alone = lane(found.problems, 1)
    np.testing.assert_array_equal(found.alpha[1], tokens.optimal(alone))
    assert float(
        svm.margins(svm.token_constraints(alone, found.alpha[1]), jnp.asarray(found.W[1])).min()
    ) == pytest.approx(1)
