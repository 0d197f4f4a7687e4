"""The max-margin problem in the norm of sign matrices: the whole linear program, rows of every kind, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from jaxattn import svm
from jaxattn.svm import ColumnGeneration, Status
from tests import instances
from tests.svm.posed import assert_certified, assert_lanes_keep_to_themselves, posed
from tests.test_signs import sign_matrices


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_it_is_the_solution_of_the_program_with_all_sign_matrices(kind):
    constraints = posed(kind, C=0.05)
    solutions = svm.solve_batch(constraints, "sign")
    assert_certified(solutions)
    one = instances.lane(constraints, 0)
    # Up to their sign, since -x y^T is one, too.
    ball = sign_matrices(5, 5)[: 2**9 * 2]
    ball = np.concatenate([ball, -ball])
    rows = np.einsum("nmd,ne,kde->nmk", one.differences, one.queries, ball, optimize=True).reshape(-1, len(ball))
    prices = np.full(len(rows), 0.05 if kind == "soft" else 1e3)
    cost, slacks = np.concatenate([np.ones(len(ball)), prices]), np.eye(len(rows))
    whole = linprog(cost, A_ub=-np.concatenate([rows, slacks], axis=1), b_ub=-np.ones(len(rows)), method="highs")
    np.testing.assert_allclose(solutions.primal[0], whole.fun, rtol=1e-7)


def test_equalities_hold():
    constraints = posed("sets")
    solutions = svm.solve_batch(constraints, "sign")
    assert_certified(solutions)
    assert solutions.violation.max() <= 1e-9


def test_infeasible_lanes_and_repeated_rows_keep_to_themselves():
    assert_lanes_keep_to_themselves("sign")


@pytest.mark.slow
def test_one_row_has_the_dual_norm_for_its_value_at_every_scale():
    """Of rank one that is the sum of the sizes of all entries, 7 times 3; with the square, half its square."""
    b, z = jnp.array([[[3.0, 0.0, -4.0]]]), jnp.array([[1.0, 2.0, 0.0]])
    for c in (1e-6, 1.0, 1e6):
        solution = svm.solve(svm.Constraints(c * b, z), "sign")
        assert Status(int(solution.status)) is Status.OPTIMAL
        np.testing.assert_allclose(solution.primal, 1 / 21 / c, rtol=1e-8)
    squared = svm.solve(svm.Constraints(b, z), svm.squared("sign"))
    np.testing.assert_allclose(squared.primal, 0.5 / 21**2, rtol=1e-8)


def test_single_precision_is_certified_to_its_own_tolerance():
    constraints = posed("hard")
    single = svm.solve_batch(jax.tree.map(lambda leaf: leaf.astype(np.float32), constraints), "sign")
    np.testing.assert_array_equal(single.status, Status.OPTIMAL)


def test_what_it_cannot_do_is_refused():
    one = instances.lane(posed("hard"), 0)
    with pytest.raises(ValueError, match=r"^ColumnGeneration: expected norm 'sign', found 'nuclear'"):
        svm.solve(one, "nuclear", solver=ColumnGeneration())
    with pytest.raises(TypeError, match=r"^ColumnGeneration: expected arrays of numbers, found tracers"):
        jax.jit(lambda rows: svm.solve(rows, "sign"))(one)
    with pytest.raises(ValueError, match=r"^ColumnGeneration: expected hard rows, or a norm that is not"):
        svm.solve(svm.soft(one, C=1.0), svm.squared("sign"))
    wide = svm.Constraints(jnp.ones((1, 1, 17)), jnp.ones((1, 18)))
    with pytest.raises(ValueError, match=r"^norm 'sign': expected matrices with a side of at most 16"):
        svm.solve(wide, "sign")
