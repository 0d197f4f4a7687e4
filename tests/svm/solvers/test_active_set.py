"""The Frobenius solver against solutions known beforehand, on every shape and under degeneracy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import Problem, svm
from jaxattn.svm import ActiveSet, Status
from tests import instances
from tests.instances import assert_close
from tests.svm import constructed

SOLVER = ActiveSet()


def solve(constraints) -> svm.Solution:
    return svm.solve(constraints, norm="frobenius", solver=SOLVER)


@pytest.mark.parametrize("support", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_constructed_solution_is_recovered_with_its_multipliers(seed, support):
    known = constructed.frobenius(seed, support=support)
    solution = solve(known.constraints)
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close(solution.W, known.W, rtol=1e-10)
    assert_close(solution.duals, known.duals, rtol=1e-9)
    np.testing.assert_allclose(solution.primal, known.value, rtol=1e-11)


def test_the_solution_is_a_combination_of_the_tight_constraints():
    constraints = instances.lane(instances.constraints(4), 0)
    solution = solve(constraints)
    A, a = instances.matrices(constraints), np.asarray(solution.duals)
    combined = np.einsum("nm,nmde->de", a, A)
    assert_close(solution.W, combined * float(solution.primal) / np.linalg.norm(combined), rtol=1e-11)
    margins = np.einsum("nmde,de->nm", A, solution.W)
    assert np.all(a >= 0)
    assert np.max(a * (margins - 1)) < 1e-11


def test_one_constraint_is_its_own_solution():
    b, z = np.array([3.0, 0.0, 4.0]), np.array([0.0, 2.0, 0.0])
    solution = solve(svm.Constraints(jnp.asarray(b[None, None]), jnp.asarray(z[None])))
    assert_close(solution.W, np.outer(b, z) / 100)
    np.testing.assert_allclose(solution.primal, 0.1)


def test_repeated_and_implied_constraints_change_nothing():
    known = constructed.frobenius(3)
    differences = known.constraints.differences
    # A copy of a support constraint, and one that is implied since it asks for less.
    more = jnp.concatenate([differences, differences[:, :1], 2 * differences[:, 1:2]], axis=1)
    solution = solve(svm.Constraints(more, known.constraints.queries))
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close(solution.W, known.W, rtol=1e-10)


def test_copies_of_tokens_that_are_not_selected_do_no_harm():
    problem = instances.problem()
    X = problem.X.at[:, 3].set(problem.X[:, 2])
    constraints = svm.token_constraints(Problem(X=X, Z=problem.Z, Y=problem.Y, v=problem.v), [0, 1, 0])
    assert solve(constraints).status == Status.OPTIMAL


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from([(1, 2, 1), (7, 4, 3), (3, 4, 5)]), st.integers(0, 2**31 - 1))
def test_a_separable_problem_of_any_shape_is_solved_and_certified(shape, seed):
    problem, alpha = instances.planted(seed, *shape)
    constraints = svm.token_constraints(problem, alpha)
    solution = solve(constraints)
    assert Status(int(solution.status)) is Status.OPTIMAL
    margins = np.einsum("nmde,de->nm", instances.matrices(constraints), solution.W)
    np.testing.assert_allclose(margins.min(), 1, rtol=1e-12)
    bound = np.sum(solution.duals) / np.linalg.norm(
        np.einsum("nm,nmde->de", solution.duals, instances.matrices(constraints))
    )
    np.testing.assert_allclose(np.linalg.norm(solution.W), bound, rtol=1e-8)


def test_infeasible_lanes_of_a_batch_keep_to_themselves():
    good = constructed.frobenius(4)
    lanes = [good.constraints, *(make()[0] for make in instances.INFEASIBLE.values()), good.constraints]
    solutions = svm.solve_batch(instances.stacked(lanes), solver=SOLVER)
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    assert_close(solutions.W[3], solutions.W[0], rtol=0)
    assert_close(solutions.W[0], good.W, rtol=1e-10)


def test_too_few_pivots_are_not_certified():
    few = ActiveSet(sweeps=0)
    solution = svm.solve(constructed.frobenius(0).constraints, solver=few)
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(solution))


def test_another_norm_is_refused():
    with pytest.raises(ValueError, match=r"^ActiveSet: expected norm 'frobenius', found 'nuclear'"):
        svm.solve(constructed.frobenius(0).constraints, norm="nuclear", solver=SOLVER)


def test_a_token_and_its_copy_are_refuted_in_every_lane():
    # The proof is one row of length 0: rounding in the other multipliers must not stand beside it.
    rng = np.random.default_rng(0)
    D, Z = rng.normal(size=(1024, 3, 3, 5)), rng.normal(size=(1024, 3, 5))
    D[:, 1, 2] = 0.0
    solutions = svm.solve_batch(svm.Constraints(jnp.asarray(D), jnp.asarray(Z)), solver=SOLVER)
    np.testing.assert_array_equal(solutions.status, Status.INFEASIBLE)
    np.testing.assert_array_equal(solutions.duals[:, 1, 2], 1)


@pytest.mark.parametrize("lift", [jax.jit, lambda solve: lambda rows: jax.vmap(solve)(instances.stacked([rows] * 2))])
def test_nan_that_only_jit_lets_through_ends_undecided_and_without_nan(lift):
    constraints = constructed.frobenius(0).constraints
    broken = constraints._replace(differences=constraints.differences.at[1].set(jnp.nan))
    found = lift(solve)(broken)
    np.testing.assert_array_equal(found.status, Status.NOT_CONVERGED)
    assert not any(np.isnan(leaf).any() for leaf in found)
