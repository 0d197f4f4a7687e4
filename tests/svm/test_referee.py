"""Certificates against exact arithmetic: hostile problems, candidates made to fool, and the referee itself."""

import os
import subprocess
import sys
from fractions import Fraction
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import hostile
from jaxattn import norms, svm
from jaxattn.svm import ActiveSet, Candidate, Constraints, InteriorPoint, Status
from jaxattn.svm.certificate import certify_lanes, tolerance_of
from jaxattn.svm.rounding import dot, exactly
from tests.instances import lane, slow
from tests.svm import referee

SQUARED = norms.squared(norms.frobenius)
# Problems of each kind, and in all: the lanes of one program, and of as few others as will do.
EACH = 12
DOUBLE, SINGLE = pytest.param(np.float64), slow(np.float32)


def certifying(norm=norms.frobenius):
    """Certify as `solve_batch` does, in NumPy."""

    def certified(constraints, W, duals):
        given = jax.tree.map(np.asarray, (constraints, Candidate(W, duals, jnp.zeros(len(W), int))))
        return certify_lanes(given[0], norm, given[1], tolerance_of(W.dtype))

    return certified


@cache
def compiled(norm=norms.frobenius):
    """Certify under `jit` and `vmap`."""
    return jax.jit(
        jax.vmap(
            lambda constraints, W, duals: svm.certify(
                constraints, norm, Candidate(W, duals, jnp.asarray(0)), tolerance_of(W.dtype)
            )
        )
    )


@cache
def solving(solver, norm=norms.frobenius):
    return jax.jit(jax.vmap(lambda constraints: solver(constraints, norm)))


def certified(constraints, solver, norm=norms.frobenius) -> svm.Solution:
    found = solving(solver, norm)(constraints)
    return certifying(norm)(constraints, found.W, found.duals)


def assert_no_mistake(constraints, solutions, norm=norms.frobenius) -> None:
    constraints, solutions = jax.tree.map(np.asarray, (constraints, solutions))
    found = {
        f"{i} {Status(int(solutions.status[i])).name}": said
        for i in range(len(solutions.status))
        if (said := list(referee.mistakes(lane(constraints, i), norm, lane(solutions, i))))
    }
    assert not found


@cache
def together(dtype=np.float64) -> Constraints:
    """Some problems of every kind, one kind after the other."""
    drawn = [hostile.draw(kind, 2, EACH, dtype) for kind in hostile.KINDS]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)


def of_kind(kind: str, tree):
    first = EACH * list(hostile.KINDS).index(kind)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[first : first + EACH], tree)


def listed(rows, targets=None, penalty=None, dtype=np.float64) -> Constraints:
    """Up to three rows that ask something of the first column of W, in the shape of the hostile problems."""
    differences, wanted = np.zeros((2, 3, 2)), np.zeros((2, 3))
    differences[0, : len(rows)], wanted[0, : len(rows)] = rows, 1.0 if targets is None else targets
    present = np.arange(6).reshape(2, 3) < len(rows)
    return Constraints(
        differences=jnp.asarray(differences, dtype),
        queries=jnp.asarray([[1, 0], [1, 0]], dtype),
        targets=jnp.asarray(wanted, dtype),
        equal=jnp.zeros((2, 3), bool),
        present=jnp.asarray(present),
        penalty=None if penalty is None else jnp.full((2, 3), penalty, dtype),
    )


def alone(constraints, column, of_rows, norm=norms.frobenius) -> svm.Solution:
    """What a column of W and multipliers of the first rows prove, in every lane of the program of the others."""
    W, duals = np.zeros((2, 2)), np.zeros((2, 3))
    W[:, 0], duals[0, : len(of_rows)] = column, of_rows
    dtype, lanes = constraints.differences.dtype, EACH * len(hostile.KINDS)
    one = (constraints, jnp.asarray(W, dtype), jnp.asarray(duals, dtype))
    found = certifying(norm)(*jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), one))
    found = jax.tree.map(np.asarray, lane(found, 0))
    assert list(referee.mistakes(constraints, norm, found)) == []
    return found


@pytest.mark.parametrize(("dtype", "small"), [(np.float64, 1e-160), (np.float32, 1e-20)])
def test_a_row_whose_square_is_below_the_range_is_feasible(dtype, small):
    row = listed([[small, 2 * small]], [small], dtype=dtype)
    assert alone(row, [0, 0], [1]).status == Status.NOT_CONVERGED
    assert alone(row, [0.2, 0.4], [1]).status == Status.OPTIMAL


@pytest.mark.parametrize(("dtype", "flushed"), [(np.float64, 1e-310), (np.float32, 1e-40)])
def test_a_target_that_is_flushed_to_zero_is_not_met_by_zero(dtype, flushed):
    found = alone(listed([[1, 0]], [flushed], dtype=dtype), [0, 0], [0])
    assert found.status == Status.NOT_CONVERGED
    assert found.violation == np.inf


def test_rows_that_leave_a_slit_open_are_infeasible_up_to_the_length_that_it_asks_for():
    found = alone(listed([[1, 0], [-1, 1e-13]]), [0, 0], [1, 1])
    assert found.status == Status.INFEASIBLE
    assert "below `dual`" in Status.INFEASIBLE.message
    # (1, 2e13) satisfies both.
    np.testing.assert_allclose(found.dual, 2e13, rtol=1e-6)
    assert found.dual <= 2e13
    # Where nothing at all does, the bound is what sums may be off by; of a row of zeros there is none.
    assert alone(listed([[1, 3], [-1, -3]]), [0, 0], [1, 1]).dual > 1e18
    assert alone(listed([[0, 0], [1, 0]]), [0, 0], [1]).dual == np.inf


def test_a_shortfall_that_rounding_hides_is_a_violation():
    rows = listed([[-1e8, 2.3e8], [8e-9, -2e-9]])
    A = np.asarray(rows.differences)[0, :2]
    W = np.linalg.solve(A, np.ones(2))
    duals = np.linalg.solve(A.T, W)
    # A step to the next number takes the first margin from 1 to about -2.
    assert alone(rows, W, duals).status == Status.OPTIMAL
    found = alone(rows, W * [1 + 2**-52, 1], duals)
    assert found.status == Status.NOT_CONVERGED
    assert found.violation > 1


@pytest.mark.parametrize("C", [1e8, 1e12, 1e16, 1e300])
@pytest.mark.parametrize("norm", [norms.frobenius, slow(SQUARED)], ids=["norm", "squared"])
def test_a_price_is_paid_for_shortfalls_below_rounding(C, norm):
    # (0.6, 0.8) has length 1 and margin 1 up to rounding, for which a price of 1e16 is much.
    rows = listed([[0.6, 0.8], [0.1, 0.1]], [1, 0.1], penalty=C)
    short = 1 - sum(Fraction(x) ** 2 for x in (0.6, 0.8))
    W = [0.6, 0.8 - 2**-53]
    found = alone(rows, W, [1], norm)
    assert abs(short) < 1e-16
    assert (found.status == Status.OPTIMAL) == (C < 1e10)


def test_multipliers_whose_combination_rounds_to_zero_prove_nothing():
    B = 2.0**60
    rows = listed([[1, 0], [B, B], [-B, -B]], [1, 0, 0])
    found = alone(rows, [0, 0], [1, 1, 1])
    assert found.status == Status.NOT_CONVERGED
    assert found.dual <= 2**0.5
    assert referee.least_squared(rows) == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_candidate_fools_the_certificate(dtype):
    # Multipliers of any size, some that nearly cancel the rows with no regard to signs, and matrices of any length.
    rng, constraints = np.random.default_rng(1), together(dtype)
    count = len(constraints.queries)
    A = np.einsum("bnmd,bne->bnmde", constraints.differences, constraints.queries).reshape(count, 6, 4).astype(float)
    A = A / np.where((size := np.abs(A).max(axis=(1, 2), keepdims=True)) > 0, size, 1.0)
    cancels = np.linalg.svd(np.where(np.isfinite(A), A, 0.0))[0][:, :, -1].reshape(count, 2, 3)
    wild = 10.0 ** rng.uniform(-9, 9, size=cancels.shape) * rng.choice([-1, 0, 1, 1], size=cancels.shape)
    W = 10.0 ** rng.uniform(-9, 9, size=(count, 1, 1)) * rng.normal(size=(count, 2, 2))
    for duals in (wild, cancels, np.abs(cancels), cancels + 1e-12 * wild):
        found = certifying()(constraints, jnp.asarray(W, dtype), jnp.asarray(duals, dtype))
        assert_no_mistake(constraints, found)


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_nothing_false_is_certified_of_hostile_problems(dtype):
    constraints = together(dtype)
    found = certified(constraints, ActiveSet())
    assert_no_mistake(constraints, found)
    decided = np.asarray(found.status).reshape(len(hostile.KINDS), -1) != Status.NOT_CONVERGED
    ordinary = [kind in ("gaussian", "planted", "whole_numbers", "masked") for kind in hostile.KINDS]
    assert decided[ordinary].mean() > 0.95


def test_what_is_certified_under_jit_is_true_and_what_a_batch_is_told():
    constraints = together()
    found = solving(ActiveSet())(constraints)
    both = [make()(constraints, found.W, found.duals) for make in (compiled, certifying)]
    assert_no_mistake(constraints, both[0])
    # Of other kinds some shortfalls are rounding errors of about the tolerance, which either form may bound by less.
    for kind in ("gaussian", "planted", "whole_numbers", "masked"):
        inside, outside = (of_kind(kind, one) for one in both)
        np.testing.assert_array_equal(inside.status, outside.status)
        for name in ("W", "duals", "primal"):
            np.testing.assert_allclose(getattr(inside, name), getattr(outside, name), rtol=1e-9, atol=1e-15)


def test_the_exact_optimum_lies_where_the_certificate_says():
    found = certified(together(), ActiveSet())
    for kind in ("gaussian", "nearly_infeasible", "whole_numbers", "equalities"):
        assert_around(of_kind(kind, together()), of_kind(kind, found), 6)


def assert_around(constraints, found, count: int) -> None:
    for i in range(count):
        least, one = referee.least_squared(lane(constraints, i)), lane(found, i)
        if least is None:
            # Equalities may contradict each other by less than the tolerance.
            assert one.status != Status.OPTIMAL or one.violation > 0
        else:
            assert np.isfinite(one.dual)
            assert Fraction(float(one.dual)) ** 2 <= least
        if least is not None and one.status == Status.OPTIMAL:
            assert Fraction(float(one.primal) * (1 - 1e-7)) ** 2 <= least
            # What violates inequalities by a share of their targets is nearly as long.
            assert constraints.equal[i].any() or Fraction(float(one.primal) * (1 + 1e-7)) ** 2 >= least


@pytest.mark.parametrize("wrong", ["violation", "primal", "dual", "duals", "gap"])
def test_the_referee_sees_what_is_wrong_in_the_last_digits(wrong):
    found = lane(of_kind("planted", certified(together(), ActiveSet())), 0)
    one = lane(of_kind("planted", together()), 0)
    assert list(referee.mistakes(one, norms.frobenius, found)) == []
    value = {
        "violation": found.violation / 8 - (found.violation == 0),
        "primal": found.primal * (1 - 1e-14),
        "dual": found.dual * (1 + 3e-14),
        "duals": -found.duals,
        "gap": np.asarray(0.0),
    }[wrong]
    if wrong == "gap":
        found = found._replace(primal=found.primal * (1 + 1e-14))
    assert list(referee.mistakes(one, norms.frobenius, found._replace(**{wrong: value})))


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_a_sum_of_products_is_enclosed(dtype):
    rng = np.random.default_rng(0)
    for count in (3, 40):
        A, B = rng.uniform(-1, 1, size=(count, 2)), rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-6, 6)
        # The last product cancels the others up to rounding.
        A[-1, 0], B[-1, 0] = 1.0, -A[:-1, 0] @ B[:-1, 0]
        A, B = A.astype(dtype), B.astype(dtype)
        found = jax.jit(lambda A, B: dot(A, exactly(B)))(A, B)
        for i, j in np.ndindex(2, 3):
            exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(A[:, i], B[:, j], strict=True))
            off = exact - Fraction(float(found.head[i, j])) - Fraction(float(found.tail[i, j]))
            assert abs(off) <= Fraction(float(found.error))
        # A bound far below what one rounding of the largest term may hide.
        assert found.error < 2 * count**2 * np.finfo(dtype).eps ** 1.2 * np.abs(B).max()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_nothing_false_is_certified_of_thousands(kind, dtype):
    hard = hostile.draw(kind, 6, dtype=dtype)
    assert_no_mistake(hard, certified(hard, ActiveSet()))
    soft = hostile.priced(hard, 7)
    for norm in (norms.frobenius, SQUARED):
        assert_no_mistake(soft, certified(soft, InteriorPoint(), norm), norm)


@pytest.mark.slow
@pytest.mark.parametrize("kind", hostile.KINDS)
def test_nothing_false_is_certified_of_singular_values(kind):
    hard = hostile.draw(kind, 8, 300)
    found = solving(InteriorPoint(), norms.nuclear)(hard)
    for norm in (norms.nuclear, norms.spectral):
        assert_no_mistake(hard, certifying(norm)(hard, found.W, found.duals), norm)


@pytest.mark.slow
def test_the_exact_optimum_lies_where_the_certificate_says_of_many():
    for kind in hostile.KINDS:
        constraints = hostile.draw(kind, 9, 60)
        assert_around(constraints, jax.tree.map(np.asarray, certified(constraints, ActiveSet())), 60)


@pytest.mark.slow
def test_nothing_false_is_certified_where_only_single_precision_is_known():
    command = """
import numpy as np
from tests.svm import test_referee as tests
tests.test_nothing_false_is_certified_of_hostile_problems(np.float32)
tests.test_no_candidate_fools_the_certificate(np.float32)
"""
    subprocess.run([sys.executable, "-c", command], check=True, env=os.environ | {"JAX_ENABLE_X64": "0"})
