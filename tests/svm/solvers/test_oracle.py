"""The CVXPY oracle: known solutions, norms of the user's own, and what it cannot do."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxattn import metrics, svm
from jaxattn.svm import Cvxpy, Norm, Status, Tolerance
from tests import instances
from tests.instances import assert_close
from tests.svm import constructed

pytest.importorskip("cvxpy")
SOLVER = Cvxpy()


def spectral(W):
    return jnp.linalg.norm(W, 2)


def nuclear_value(W):
    return jnp.linalg.norm(W, "nuc")


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_a_constructed_solution_is_recovered(norm):
    known = getattr(constructed, norm)(0)
    solution = svm.solve(known.constraints, norm=norm, solver=SOLVER)
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, known.value, rtol=1e-8)
    assert 1 - metrics.correlation(solution.W, jnp.asarray(known.W)) < 1e-8
    assert_close(solution.duals, known.duals, rtol=1e-3)


def test_a_norm_of_the_users_own_is_solved_and_certified():
    norm = Norm("spectral", value=spectral, dual=nuclear_value)
    solver = Cvxpy(atom=lambda cp, W: cp.norm(W, 2))
    constraints = constructed.frobenius(0).constraints
    solution = svm.solve(constraints, norm=norm, solver=solver)
    assert Status(int(solution.status)) is Status.OPTIMAL
    # The spectral solution has the smallest largest singular value of the three.
    others = [svm.solve(constraints, norm=name).W for name in ("frobenius", "nuclear")]
    assert all(solution.primal < np.linalg.norm(W, 2) for W in others)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_infeasibility_is_proven_to_the_accuracy_of_the_oracle(norm, kind):
    # An interior-point combination is zero to about 1e-8, not to rounding: the tolerance says so.
    constraints, _ = instances.INFEASIBLE[kind]()
    solution = svm.solve(constraints, norm=norm, solver=SOLVER, tolerance=Tolerance(farkas=1e-6))
    assert Status(int(solution.status)) is Status.INFEASIBLE
    combined = np.einsum("nm,nmde->de", solution.duals, instances.matrices(constraints))
    assert np.linalg.norm(combined) < 1e-5
    np.testing.assert_allclose(np.sum(solution.duals), 1, rtol=1e-12)
    assert np.min(solution.duals) >= 0


def test_a_batch_is_solved_lane_by_lane():
    batch = instances.stacked([constructed.frobenius(seed).constraints for seed in (0, 1)])
    solutions = svm.solve_batch(batch, solver=SOLVER)
    assert list(solutions.status) == [Status.OPTIMAL] * 2
    for i in range(2):
        assert_close(instances.lane(solutions, i).W, svm.solve(instances.lane(batch, i), solver=SOLVER).W, rtol=1e-12)


@pytest.mark.parametrize("lift", [jax.jit, jax.vmap])
def test_it_refuses_to_run_under_jit_and_vmap(lift):
    batch = instances.constraints(4)
    constraints = batch if lift is jax.vmap else instances.lane(batch, 0)
    with pytest.raises(TypeError, match=r"^Cvxpy: expected arrays of numbers, found tracers"):
        lift(partial(svm.solve, solver=SOLVER))(constraints)


def test_a_norm_without_an_expression_is_refused():
    norm = Norm("spectral", value=spectral, dual=nuclear_value)
    with pytest.raises(ValueError, match=r"^Cvxpy: expected a norm among .*frobenius.*nuclear.* found 'spectral'"):
        svm.solve(constructed.frobenius(0).constraints, norm=norm, solver=SOLVER)
