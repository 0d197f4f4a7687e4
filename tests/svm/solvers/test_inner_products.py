"""The max-margin problem in gamma_2: Clarabel's answer, closed forms, infeasible lanes, and rows of every kind."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.svm import Status
from tests import instances

LANES = 3


def posed(kind: str) -> svm.Constraints:
    """A batch of problems of the shared shape with rows of one kind."""
    if kind == "sets":
        selected = jnp.zeros((instances.n, instances.T), bool).at[:, 0].set(True).at[0, 2].set(True)
        return instances.stacked([svm.set_constraints(instances.problem(i), selected) for i in range(LANES)])
    hard = instances.constraints(LANES)
    return hard if kind == "hard" else jax.vmap(partial(svm.soft, C=0.4))(hard)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft", "squared", "sets"])
def test_rows_of_every_kind_are_certified(kind):
    norm = svm.squared("gamma2") if kind == "squared" else svm.gamma2
    solutions = svm.solve_batch(posed(kind), norm)
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    np.testing.assert_array_equal(solutions.status, Status.OPTIMAL)
    assert np.abs(solutions.gap).max() < 1e-8


def test_it_agrees_with_clarabel():
    cp = pytest.importorskip("cvxpy")
    constraints = posed("hard")
    ours = svm.solve_batch(constraints, "gamma2")
    np.testing.assert_array_equal(ours.status, Status.OPTIMAL)
    assert np.abs(ours.gap).max() < 1e-8
    one, d = instances.lane(constraints, 0), instances.d
    rows = np.einsum("nmd,ne->nmde", one.differences, one.queries).reshape(-1, d * d)
    X = cp.Variable((2 * d, 2 * d), PSD=True)
    asked = [rows @ cp.vec(X[:d, d:], order="C") >= 1]
    theirs = cp.Problem(cp.Minimize(cp.max(cp.diag(X))), asked).solve(solver="CLARABEL")
    np.testing.assert_allclose(ours.primal[0], theirs, rtol=1e-6)


def test_infeasible_lanes_and_repeated_rows_keep_to_themselves():
    good = instances.lane(posed("hard"), 0)
    twice = good._replace(differences=good.differences.at[:, 2].set(good.differences[:, 1]))
    lanes = [good, *(make()[0] for make in instances.INFEASIBLE.values()), twice]
    solutions = svm.solve_batch(instances.stacked(lanes), "gamma2")
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    assert not any(np.isnan(leaf).any() for leaf in solutions)
    assert solutions.primal[3] <= solutions.primal[0] * (1 + 1e-8)


def test_one_row_has_the_dual_norm_for_its_value():
    """Of rank one that is the sum of the sizes of all entries, 7 times 3."""
    b, z = jnp.array([[[3.0, 0.0, -4.0]]]), jnp.array([[1.0, 2.0, 0.0]])
    solution = svm.solve(svm.Constraints(b, z), "gamma2")
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, 1 / 21, rtol=1e-8)


@pytest.mark.slow
def test_single_precision_is_certified_to_its_own_tolerance():
    constraints = posed("hard")
    single = svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), constraints), "gamma2")
    np.testing.assert_array_equal(single.status, Status.OPTIMAL)
    np.testing.assert_allclose(single.primal, svm.solve_batch(constraints, "gamma2").primal, rtol=2e-4)
