"""The max-margin problem in gamma_2: Clarabel's answer, closed forms, infeasible lanes, and rows of every kind."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import svm
from jaxattn.svm import Status
from tests import instances
from tests.svm.posed import assert_certified, assert_lanes_keep_to_themselves, assert_single_precision, posed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soft", "squared", "sets"])
def test_rows_of_every_kind_are_certified(kind):
    norm = svm.squared("gamma2") if kind == "squared" else svm.gamma2
    solutions = svm.solve_batch(posed(kind), norm)
    assert_certified(solutions)


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
    assert_lanes_keep_to_themselves("gamma2")


@pytest.mark.slow
def test_one_row_has_the_dual_norm_for_its_value():
    """Of rank one that is the sum of the sizes of all entries, 7 times 3."""
    b, z = jnp.array([[[3.0, 0.0, -4.0]]]), jnp.array([[1.0, 2.0, 0.0]])
    solution = svm.solve(svm.Constraints(b, z), "gamma2")
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, 1 / 21, rtol=1e-8)


@pytest.mark.slow
def test_single_precision_is_certified_to_its_own_tolerance():
    assert_single_precision("gamma2", svm.solve_batch(posed("hard"), "gamma2"))
