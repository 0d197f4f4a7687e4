"""The trace of positive semidefinite matrices: by hand, against CVXPY, without a solution, and for tied factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import bias, descent, models, svm
from jaxattn.bias import semidefinite
from tests import instances
from tests.instances import assert_close


def posed(differences, queries, **kinds):
    """One lane of these rows."""
    rows = svm.Constraints(jnp.asarray(differences, float), jnp.asarray(queries, float), **kinds)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], rows)


def test_one_row_by_hand():
    """The largest eigenvalue of (u z^T + z u^T) / 2 is (u . z + |u| |z|) / 2, for the eigenvector u / |u| + z / |z|."""
    found = semidefinite.solve_batch(posed([[[2.0, 0.0]]], [[0.6, 0.8]]))
    assert svm.Status(found.status[0]) is svm.Status.OPTIMAL
    assert found.primal[0] == pytest.approx(1 / 1.6, rel=1e-8)
    way = np.array([1.6, 0.8])
    assert_close(found.W[0], np.outer(way, way) / (way @ way) / 1.6, rtol=1e-3, atol=1e-6)
    # Without the condition the nuclear norm can be 1 / (|u| |z|).
    assert svm.solve_batch(posed([[[2.0, 0.0]]], [[0.6, 0.8]]), "nuclear").primal[0] == pytest.approx(0.5)


def test_the_value_is_infinite_off_the_cone_and_the_dual_one_sided():
    value, dual = map(jax.jit, (semidefinite.trace.value, semidefinite.trace.dual))
    K = np.random.default_rng(0).normal(size=(2, 1))
    assert_close(value(K @ K.T), np.sum(K**2), rtol=1e-12)
    assert value(np.diag([1.0, -1e-6])) == np.inf
    assert value(np.array([[1.0, 1e-6], [0.0, 1.0]])) == np.inf
    assert dual(-np.eye(2)) == 0.0
    assert dual(np.array([[0.0, 2.0], [0.0, 0.0]])) == pytest.approx(1.0)


def test_the_optimum_is_that_of_cvxpy():
    cp = pytest.importorskip("cvxpy")
    rows = instances.constraints(3)
    found = semidefinite.solve_batch(rows)
    assert (found.status == svm.Status.OPTIMAL).all()
    for lane in range(3):
        A = instances.matrices(instances.lane(rows, lane)).reshape(-1, 5, 5)
        W = cp.Variable((5, 5), PSD=True)
        asked = cp.Problem(cp.Minimize(cp.trace(W)), [cp.sum(cp.multiply(one, W)) >= 1 for one in A])
        asked.solve(solver="CLARABEL")
        assert found.primal[lane] == pytest.approx(asked.value, rel=1e-6)
    assert (np.linalg.eigvalsh(found.W) > -1e-10 * found.primal[:, None]).all()


def test_rows_without_a_solution():
    opposed = posed([[[1.0, 0.0]]], [[-1.0, 0.0]])
    assert svm.Status(semidefinite.solve_batch(opposed).status[0]) is svm.Status.NOT_CONVERGED
    contrary = posed([[[1.0, 0.0], [-1.0, 0.0]]], [[1.0, 0.0]])
    assert svm.Status(semidefinite.solve_batch(contrary).status[0]) is svm.Status.INFEASIBLE


def test_absent_rows_do_not_count():
    present = jnp.array([[True, False]])
    both = posed([[[2.0, 0.0], [-1.0, 0.0]]], [[0.6, 0.8]], present=present)
    assert semidefinite.solve_batch(both).primal[0] == pytest.approx(1 / 1.6, rel=1e-8)


@pytest.mark.parametrize("kind", [{"penalty": jnp.ones((1, 1))}, {"equal": jnp.ones((1, 1), bool)}])
def test_other_rows_are_refused(kind):
    with pytest.raises(ValueError, match=r"^trace: expected hard inequalities on square matrices, found others"):
        semidefinite.solve_batch(posed([[[1.0, 0.0]]], [[1.0, 0.0]], **kind))


def test_tied_factors_obey_the_trace():
    problems, start = instances.problems(8), 0.1 * np.random.default_rng(1).normal(size=(8, 5, 5))
    given = {"optimizer": descent.normalized_gd(0.1, floor=0.0, penalty=0.0), "steps": 2000}
    run = descent.train_batch(start, problems, model=models.tied(), snapshots=(200, 600, 1000, 2000), **given)
    ranking = bias.rank(run, problems, ["trace", "nuclear"])
    assert ranking.verdict == bias.Verdict(("trace",), decided=True)
