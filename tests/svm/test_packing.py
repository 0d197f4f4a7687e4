"""Rows that do not count are packed away: every lane by its own mask, and put back."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import data, svm, tokens
from jaxattn.svm import Status
from jaxattn.svm.packing import packed
from tests import instances
from tests.instances import T, d, n, slow
from tests.svm import problems

ROWS = n * (T - 1)


def masked(counts: list[int], seed: int = 0) -> Any:
    """Problems of the shared shape of which lane i has so many rows, at random places."""
    rng = np.random.default_rng(seed)
    present = np.zeros((len(counts), ROWS), bool)
    for lane, count in zip(present, counts, strict=True):
        lane[rng.permutation(ROWS)[:count]] = True
    posed = instances.constraints(len(counts))._replace(present=present.reshape(-1, n, T - 1))
    return jax.tree.map(np.asarray, posed)


@pytest.mark.parametrize("norm", ["frobenius", *map(slow, ("nuclear", "spectral"))])
def test_a_lane_does_not_depend_on_its_neighbours_in_any_bit(norm):
    few = masked([4, 4, 4, 3, 4])
    others = few._replace(
        present=np.concatenate([few.present[:2], masked([2, ROWS, 7], seed=1).present]),
        differences=np.concatenate([few.differences[:2], -3 * few.differences[2:]]),
    )
    one, other = svm.solve_batch(few, norm), svm.solve_batch(others, norm)
    np.testing.assert_array_equal(one.status[:2], Status.OPTIMAL)
    jax.tree.map(lambda mine, same: np.testing.assert_array_equal(mine[:2], same[:2]), one, other)
    backwards = svm.solve_batch(jax.tree.map(lambda leaf: leaf[::-1], few), norm)
    jax.tree.map(lambda mine, same: np.testing.assert_array_equal(mine, same[::-1]), one, backwards)


@pytest.mark.parametrize("norm", ["frobenius", *map(slow, ("nuclear", "spectral"))])
def test_a_lane_is_what_solve_returns_for_it_but_for_rounding(norm):
    few = masked([4, 4, 4, 3, 4])
    lanes = svm.solve_batch(few, norm)
    for i in range(2):
        lone = svm.solve(instances.lane(few, i), norm)
        assert lone.status == lanes.status[i] == Status.OPTIMAL
        np.testing.assert_allclose(lone.primal, lanes.primal[i], rtol=1e-10)
        if norm == "frobenius":  # Its solution is unique.
            np.testing.assert_allclose(lone.W, lanes.W[i], rtol=0, atol=1e-12 * np.abs(lanes.W[i]).max())


def test_numbers_in_rows_that_do_not_count_are_not_read():
    # Nine of nine places, so that nothing is packed; whole under `jit`, where nothing can be.
    posed = instances.lane(masked([8]), 0)
    junk = posed._replace(differences=np.where(posed.present[..., None], posed.differences, 1e8))
    jax.tree.map(np.testing.assert_array_equal, svm.solve(posed), svm.solve(junk))
    both = problems.LIFTED(instances.stacked([posed, junk]))
    jax.tree.map(np.testing.assert_array_equal, instances.lane(both, 0), instances.lane(both, 1))


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("shape", [(6, 8, 10), (4, 3, 2), (3, 5, 40)])
def test_a_problem_laid_out_in_a_standard_shape_has_the_solution_that_it_has_alone(norm, shape):
    """To 1e-11 in the Frobenius norm, by the same exchanges; in the nuclear one to the root of the gap, below 1e-5."""
    n, T, d = shape
    one = data.sphere(jax.random.key(3), n=n, T=T, d=d)
    posed = svm.token_constraints(one, tokens.optimal(one))
    (part,) = packed(jax.tree.map(lambda leaf: np.asarray(leaf)[None], posed), 1, shared=True)
    assert part.rows.differences.shape == (1, 64, 1, 16)
    laid_out = svm.solve(posed, norm)
    # Under `jit` nothing is laid out.
    alone = jax.jit(lambda rows: svm.solve(rows, norm))(posed)
    assert laid_out.status == alone.status == Status.OPTIMAL
    size = np.abs(alone.W).max()
    np.testing.assert_allclose(laid_out.W / size, alone.W / size, rtol=0, atol=1e-11 if norm == "frobenius" else 1e-5)
    np.testing.assert_allclose(laid_out.primal, alone.primal, rtol=1e-10)


def test_many_problems_keep_their_own_shape_and_few_share_one():
    def shapes(lanes):
        posed = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), lanes, axis=0), instances.constraints(1))
        return [part.rows.differences.shape[1:] for part in packed(posed, lanes, shared=True)]

    assert shapes(10) == [(64, 1, 16)]
    assert shapes(10_000) == [(n, T - 1, 5)]


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
