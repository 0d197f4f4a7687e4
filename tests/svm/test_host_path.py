"""Paths on the host, in NumPy, are the compiled ones but for rounding."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer
from threadpoolctl import threadpool_limits

from jaxattn import norms, svm
from jaxattn.svm import InteriorPoint, PathFollowing, Status, batch_solver
from jaxattn.svm.pivoting import inverse_root
from tests import instances
from tests.instances import slow
from tests.svm import problems

PLANTED = range(5)
LEARNED = Path(__file__).parents[1] / "data" / "learned_rows.npz"


def on_host(constraints, norm):
    return svm.solve_batch(constraints, norm, solver=InteriorPoint())


@cache
def all_kinds(norm):
    """Hard, soft and mixed rows, equalities and absent rows, and three infeasible problems."""
    lanes = [problems.mixed(seed, norm).constraints for seed in PLANTED]
    lanes += [problems.full(instances.lane(problems.of_kind(kind), 0), priced=True) for kind in ("hard", "soft")]
    lanes += [problems.full(rows, priced=True) for rows, status in problems.table().values() if status.value]
    return instances.stacked(lanes)


def assert_same_solutions(host, compiled) -> None:
    np.testing.assert_array_equal(host.status, compiled.status)
    np.testing.assert_allclose(host.primal, compiled.primal, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [norms.nuclear, norms.squared(norms.nuclear), norms.frobenius])
def test_lanes_on_the_host_are_solved_as_under_jit(norm):
    host = on_host(all_kinds(norm), norm)
    assert_same_solutions(
        host, jax.jit(jax.vmap(partial(svm.solve, norm=norm, solver=InteriorPoint())))(all_kinds(norm))
    )
    values = [problems.mixed(seed, norm).value for seed in PLANTED]
    np.testing.assert_allclose(host.primal[: len(values)], values, rtol=1e-8)


@pytest.mark.parametrize("target", [0.0, -1.0])
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_without_a_target_above_0_the_solution_is_0(norm, target):
    rows = instances.constraints(2)
    solution = svm.solve_batch(rows._replace(targets=np.full(rows.differences.shape[:-1], target)), norm)
    assert set(solution.status.tolist()) == {Status.OPTIMAL}
    np.testing.assert_array_equal(solution.W, 0)


def test_large_batches_are_solved_by_the_compiled_path(monkeypatch):
    posed = all_kinds(norms.nuclear)
    host = on_host(posed, norms.nuclear)
    monkeypatch.setattr(batch_solver, "_COMPILED", len(host.status))
    monkeypatch.setattr(InteriorPoint, "improve", refused_on_host(InteriorPoint.improve))
    assert set(host.status.tolist()) == {Status.OPTIMAL, Status.INFEASIBLE}
    assert_same_solutions(host, on_host(posed, norms.nuclear))


@cache
def hard_rows():
    """Lanes with all rows, with an absent row, with an equality, and with a contradiction."""
    feasible, opposed = instances.constraints(3), instances.pair_of_opposites()[0]
    rows = instances.stacked([*(instances.lane(feasible, i) for i in range(3)), opposed])
    present, equal = np.ones((4, 3, 3), bool), np.zeros((4, 3, 3), bool)
    present[1, 0, 2], equal[2, 1, 1] = False, True
    return rows._replace(present=present, equal=equal)


OTHERS = "spectral", "max", "l_1", "l_1.75", "l_3", norms.squared(norms.spectral), norms.squared(norms.entrywise(3.0))


def by_path_on_host(monkeypatch, rows, norm):
    with monkeypatch.context() as patch:
        patch.setattr(batch_solver, "_ROWS", 0)
        patch.setattr(PathFollowing, "improve", refused_when_compiled(PathFollowing.improve))
        return svm.solve_batch(rows, norm)


@pytest.mark.parametrize("norm", OTHERS)
def test_other_norms_are_solved_on_the_host_as_by_clarabel(norm, monkeypatch):
    host = by_path_on_host(monkeypatch, hard_rows(), norm)
    assert host.status.tolist() == [Status.OPTIMAL] * 3 + [Status.INFEASIBLE]
    tolerance = replace(svm.DOUBLE, gap=1e-4, violation=1e-4)
    reference = svm.solve_batch(hard_rows(), norm, solver=svm.Cvxpy(), tolerance=tolerance)
    np.testing.assert_allclose(host.primal, reference.primal, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("norm", OTHERS)
def test_other_norms_are_solved_on_the_host_as_by_a_compiled_path(norm, monkeypatch):
    host = by_path_on_host(monkeypatch, hard_rows(), norm)
    monkeypatch.setattr(PathFollowing, "improve", refused_on_host(PathFollowing.improve))
    assert_same_solutions(host, svm.solve_batch(hard_rows(), norm))


@pytest.mark.parametrize("in_numpy", [True, slow(False)])
def test_rows_that_a_decoder_has_learned_are_solved(in_numpy, monkeypatch):
    # Two draws of one trained decoder's rows. The path stops if each step has to keep as near to it as most do.
    with np.load(LEARNED) as learned:
        rows = svm.Constraints(learned["differences"].astype(float), learned["queries"].astype(float))
    solution = by_path_on_host(monkeypatch, rows, "spectral") if in_numpy else svm.solve_batch(rows, "spectral")
    assert solution.status.tolist() == [Status.OPTIMAL] * 2


def test_a_single_query_is_solved_on_the_host_in_a_norm_of_entries(monkeypatch):
    rows = instances.constraints(2)
    one = rows._replace(differences=rows.differences[:, :1], queries=rows.queries[:, :1])
    host = by_path_on_host(monkeypatch, one, "l_1")
    assert set(host.status.tolist()) == {Status.OPTIMAL}
    tolerance = replace(svm.DOUBLE, gap=1e-4, violation=1e-4)
    reference = svm.solve_batch(one, "l_1", solver=svm.Cvxpy(), tolerance=tolerance)
    np.testing.assert_allclose(host.primal, reference.primal, rtol=1e-5)


def refused_when_compiled(improve):
    """The same for NumPy's arrays alone."""

    def improved(solver, constraints, norm, first):
        assert isinstance(first.W, np.ndarray)
        return improve(solver, constraints, norm, first)

    return improved


def refused_on_host(improve):
    """The same for tracers alone."""

    def improved(solver, constraints, norm, first):
        assert isinstance(first.W, Tracer)
        return improve(solver, constraints, norm, first)

    return improved


def test_a_lane_on_the_host_does_not_depend_on_the_others_in_any_bit():
    posed = all_kinds(norms.nuclear)
    together = on_host(posed, norms.nuclear)
    others = on_host(jax.tree.map(lambda leaf: np.asarray(leaf)[::-1][:5], posed), norms.nuclear)
    jax.tree.map(lambda mine, same: np.testing.assert_array_equal(mine[::-1][:5], same), together, others)
    for i in (0, len(posed.queries) - 1):
        alone = on_host(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i : i + 1], posed), norms.nuclear)
        jax.tree.map(np.testing.assert_array_equal, instances.lane(together, i), instances.lane(alone, 0))


def test_the_threads_of_blas_do_not_show_in_any_bit():
    rng = np.random.default_rng(0)
    # From about a hundred rows on, BLAS would use several.
    differences, ones = jnp.asarray(rng.normal(size=(1, 1, 130, 12)) + 0.5), jnp.ones((1, 1, 130))
    soft = svm.Constraints(differences, ones[..., :1], ones, penalty=ones)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(svm.solve_batch(soft, "frobenius", solver=InteriorPoint()))
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_root_of_a_singular_matrix_solves_what_can_be_solved(scale):
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 20, 7)) * scale ** rng.uniform(size=(4, 20, 1))
    A[:, 3] = A[:, 2]
    gram = A @ A.mT
    R = inverse_root(gram)
    assert ((R != 0).any(axis=-1).sum(axis=-1) == 7).all()
    residual = gram @ (R.mT @ (R @ gram)) - gram
    assert np.max(np.abs(residual / np.linalg.norm(A, axis=-1)[:, :, None])) < 1e-12
