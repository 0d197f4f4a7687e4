"""The nuclear solver against solutions known beforehand, and its honesty when stopped early."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import data, metrics, svm
from jaxattn.svm import InteriorPoint, Status
from tests import instances
from tests.instances import assert_close
from tests.svm import constructed

SOLVER = InteriorPoint()


def solve(constraints, solver: InteriorPoint = SOLVER) -> svm.Solution:
    return svm.solve(constraints, norm="nuclear", solver=solver)


@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_constructed_solution_is_recovered(seed, r):
    known = constructed.nuclear(seed, r=r)
    solution = solve(known.constraints)
    assert Status(int(solution.status)) is Status.OPTIMAL
    np.testing.assert_allclose(solution.primal, known.value, rtol=1e-8)
    # The certificate's gap of 1e-8 bounds the distance only by the square root of that.
    assert 1 - metrics.correlation(solution.W, jnp.asarray(known.W)) < 1e-8
    assert_close(solution.duals, known.duals, rtol=1e-3)
    assert metrics.rank(solution.W) == r


def test_the_constructed_solution_is_not_the_frobenius_one():
    known = constructed.nuclear(0)
    frobenius = svm.solve(known.constraints, norm="frobenius")
    assert metrics.correlation(frobenius.W, jnp.asarray(known.W)) < 0.999


def test_one_constraint_is_its_own_solution():
    b, z = np.array([3.0, 0.0, 4.0]), np.array([0.0, 2.0, 0.0])
    solution = solve(svm.Constraints(jnp.asarray(b[None, None]), jnp.asarray(z[None])))
    assert_close(solution.W, np.outer(b, z) / 100, rtol=1e-8)
    assert metrics.rank(solution.W) == 1


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.sampled_from([(7, 4, 3), (3, 4, 5)]), st.integers(0, 2**31 - 1))
def test_a_separable_problem_of_any_shape_is_solved_and_certified(shape, seed):
    problem, alpha = instances.planted(seed, *shape)
    constraints = svm.token_constraints(problem, alpha)
    solution = solve(constraints)
    assert Status(int(solution.status)) is Status.OPTIMAL
    A, a = instances.matrices(constraints), np.asarray(solution.duals)
    np.testing.assert_allclose(np.einsum("nmde,de->nm", A, solution.W).min(), 1, rtol=1e-12)
    bound = a.sum() / np.linalg.norm(np.einsum("nm,nmde->de", a, A), 2)
    np.testing.assert_allclose(np.linalg.norm(solution.W, "nuc"), bound, rtol=1e-8)


def test_its_value_is_below_that_of_the_frobenius_solution_and_above_its_norm():
    constraints = instances.lane(instances.constraints(4), 0)
    nuclear, frobenius = solve(constraints), svm.solve(constraints, norm="frobenius")
    assert frobenius.primal <= nuclear.primal <= np.linalg.norm(frobenius.W, "nuc")


def test_too_few_iterations_are_not_certified():
    constraints = instances.lane(instances.constraints(4), 0)
    solution = solve(constraints, InteriorPoint(most=3))
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    whole = solve(constraints)
    assert solution.dual <= whole.dual * (1 + 1e-8)
    assert solution.primal >= whole.primal * (1 - 1e-8)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(solution))


def test_a_blunt_setting_widens_the_gap_and_keeps_the_certificate():
    constraints = instances.lane(instances.constraints(4), 0)
    default, blunt = solve(constraints), solve(constraints, InteriorPoint(sharpness=0.5))
    assert default.gap < 1e-10 < blunt.gap < 1e-8
    assert Status(int(blunt.status)) is Status.OPTIMAL
    np.testing.assert_allclose(blunt.primal, default.primal, rtol=1e-8)


@pytest.mark.slow
def test_nearly_inseparable_problems_in_the_plane_are_decided():
    # Where the Frobenius solver decides, so does this one; the norms of the solutions reach thousands.
    keys = jax.random.split(jax.random.key(17), 512)
    problems = jax.vmap(data.five_tokens)(keys)
    alpha = np.random.default_rng(1).integers(0, problems.T, (keys.size, problems.n))
    constraints = jax.vmap(svm.token_constraints)(problems, alpha)
    frobenius, nuclear = (svm.solve_batch(constraints, norm) for norm in ("frobenius", "nuclear"))
    assert frobenius.primal[frobenius.status == Status.OPTIMAL].max() > 1e3
    np.testing.assert_array_equal(nuclear.status, frobenius.status)


def test_infeasible_lanes_of_a_batch_keep_to_themselves():
    good = constructed.nuclear(2)
    lanes = [good.constraints, *(make()[0] for make in instances.INFEASIBLE.values()), good.constraints]
    solutions = svm.solve_batch(instances.stacked(lanes), norm="nuclear", solver=SOLVER)
    assert list(solutions.status) == [Status.OPTIMAL, Status.INFEASIBLE, Status.INFEASIBLE, Status.OPTIMAL]
    np.testing.assert_allclose(solutions.primal[[0, 3]], good.value, rtol=1e-8)
    assert not any(np.isnan(leaf).any() for leaf in solutions)


def test_another_norm_is_refused():
    with pytest.raises(ValueError, match=r"^InteriorPoint: expected norm 'nuclear' or 'frobenius', found 'spectral'"):
        svm.solve(constructed.nuclear(0).constraints, norm="spectral", solver=SOLVER)
