"""The second stage where the optimal tokens are asked for: which seeds are kept, and with which solution."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, descent, svm, tokens
from jaxattn.study.measuring import optimum
from jaxattn.study.settings import schedule
from tests.instances import T, d, lane, n
from tests.recorded import problem_of, recorded


def test_seeds_without_an_optimum_are_left_out_by_reason(tmp_path):
    law, snapshots = partial(data.spread_scores, n=n, T=T, d=d, spread=0.0), schedule.Logarithmically(2)
    record = recorded(tmp_path, law, optimizer=descent.gd(0.5), seeds=5, steps=20, snapshots=snapshots)
    changed = record.copy(deep=True)
    changed["W"].values[1] = np.nan
    best = int(tokens.optimal(problem_of(record, 2))[0])
    changed["X"].values[2, 0, (best + 1) % T] = changed["X"].values[2, 0, best]
    found = optimum.optimum(changed)
    assert found.counts == {"attempted": 5, "kept": 3, "diverged": 1, "infeasible": 1, "unsolved": 0}
    assert found.kept.tolist() == [True, False, False, True, True]
    np.testing.assert_array_equal(found.problems.X, record["X"].values[[0, 3, 4]])
    alone = lane(found.problems, 1)
    np.testing.assert_array_equal(found.alpha[1], tokens.optimal(alone))
    rows = svm.token_constraints(alone, found.alpha[1])
    assert float(svm.margins(rows, jnp.asarray(found.W[1])).min()) == pytest.approx(1)
