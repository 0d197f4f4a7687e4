"""Rows that only fill a ragged list up: a batch is solved without them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, svm, tokens
from jaxattn.svm import Status
from tests import instances
from tests.instances import T, d, n


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_rows_that_count_in_no_lane_change_nothing(norm):
    lanes = [data.causal(jax.random.key(seed), n, T, d) for seed in range(3)]
    # In one lane of input 1 the rows of the last position do not count either.
    fewer = np.asarray(lanes[2].arrays["present"]) & (np.arange(n * T) != 2 * T - 1)[:, None] | (np.arange(T) == 0)
    lanes[2] = replace(lanes[2], present=fewer)
    posed = instances.stacked([svm.token_constraints(lane, tokens.optimal(lane)) for lane in lanes])
    posed = posed._replace(differences=jnp.where(posed.present[..., None], posed.differences, 7.0))
    found = svm.solve_batch(posed, norm=norm)
    for i in range(3):
        alone = instances.lane(posed, i)
        expected = svm.solve(alone, norm=norm)
        assert Status(int(found.status[i])) is Status(int(expected.status))
        np.testing.assert_allclose(found.primal[i], expected.primal, rtol=1e-8)
        assert found.duals[i].shape == alone.differences.shape[:2]
        np.testing.assert_array_equal(found.duals[i][~np.asarray(alone.present)], 0)
        # The duals are those of their rows: they prove the value, or that there is none.
        M = np.asarray(svm.combination(alone, jnp.asarray(found.duals[i])))
        if expected.status == Status.OPTIMAL:
            of_dual = np.linalg.norm(M) if norm == "frobenius" else np.linalg.norm(M, 2)
            np.testing.assert_allclose(found.duals[i].sum() / of_dual, expected.primal, rtol=1e-8)
        else:
            np.testing.assert_allclose(M, 0, atol=1e-8)
    assert (found.status == Status.OPTIMAL).any()


def test_a_batch_of_which_no_row_counts_keeps_its_shape():
    posed = instances.constraints(2)._replace(present=jnp.zeros((2, n, T - 1), bool))
    assert svm.solve_batch(posed).duals.shape == (2, n, T - 1)
