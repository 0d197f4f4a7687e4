"""The certificate of rows of every kind: targets, equalities, absent rows, prices, squared norms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxattn import svm
from jaxattn.svm import Candidate, Status
from jaxattn.svm import constraints as cons
from tests import instances
from tests.instances import assert_close, assert_not_certified
from tests.svm import constructed

RNG = np.random.default_rng(0)
ALL = {norm.name: norm for norm in (svm.frobenius, svm.nuclear, svm.squared(svm.frobenius), svm.squared(svm.nuclear))}
CERTIFY = {
    name: jax.jit(lambda rows, W, a, norm=norm: svm.certify(rows, norm, Candidate(W, a, jnp.asarray(0)), svm.DOUBLE))
    for name, norm in ALL.items()
}


ON_EQUATIONS = jax.jit(lambda rows, W: cons.onto(rows, cons.equations(rows), W))


@pytest.fixture(params=ALL)
def objective(request):
    return request.param


def judged(name, rows, W, a) -> svm.Solution:
    solution = CERTIFY[name](rows, jnp.asarray(W), jnp.asarray(a))
    assert not any(np.isnan(leaf).any() for leaf in solution)
    return solution


@pytest.mark.parametrize("seed", range(4))
def test_a_known_solution_with_rows_of_every_kind_is_certified(objective, seed):
    known = constructed.mixed(seed, ALL[objective])
    solution = judged(objective, known.constraints, known.W, known.duals)
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close((solution.W, solution.duals), (jnp.asarray(known.W), jnp.asarray(known.duals)), rtol=1e-11)
    np.testing.assert_allclose([solution.primal, solution.dual], known.value, rtol=1e-11)


@pytest.mark.parametrize("what", ["longer", "shorter", "nearby", "opposite", "zero"])
def test_a_wrong_matrix_with_rows_of_every_kind_is_not_certified(objective, what):
    known = constructed.mixed(0, ALL[objective])
    wrong = {
        "longer": known.W * (1 + 1e-6),
        "shorter": known.W * (1 - 1e-6),
        "nearby": known.W + 1e-6 * RNG.normal(size=known.W.shape),
        "opposite": -known.W,
        "zero": 0 * known.W,
    }[what]
    solution = judged(objective, known.constraints, wrong, known.duals)
    assert_not_certified(solution)
    # It violates a hard row, whatever its objective.
    assert solution.violation > 1e-9
    assert solution.primal == np.inf


@pytest.mark.parametrize("kind", ["tight", "equal", "inside"])
def test_wrong_multipliers_of_rows_of_any_kind_are_not_certified(objective, kind):
    known = constructed.mixed(0, ALL[objective])
    of = jax.tree.map(np.asarray, cons.rows(known.constraints))
    where = {"tight": of.hard & ~of.equal, "equal": of.equal, "inside": of.present & ~of.hard}[kind]
    wrong = np.where(where & (known.duals != 0), known.duals * 1.01, known.duals)
    solution = judged(objective, known.constraints, known.W, wrong)
    assert_not_certified(solution)
    assert solution.dual < known.value


def test_multipliers_outside_their_box_are_put_back(objective):
    known = constructed.mixed(1, ALL[objective])
    of = jax.tree.map(np.asarray, cons.rows(known.constraints))
    wild = np.where(of.present, known.duals, 5.0) + np.where(of.present & ~of.hard, 100.0, 0.0)
    solution = judged(objective, known.constraints, known.W, wild)
    assert np.all(solution.duals <= of.upper * (1 + 1e-12))
    assert np.all(solution.duals >= of.lower * (1 + 1e-12))
    np.testing.assert_array_equal(solution.duals[~of.present], 0)
    assert solution.dual <= known.value * (1 + 1e-12)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(ALL)), st.integers(0, 2**31 - 1))
def test_any_multipliers_bound_the_value_of_rows_of_every_kind_from_below(name, seed):
    rng = np.random.default_rng(seed)
    known = constructed.mixed(int(rng.integers(8)), ALL[name])
    size = 10.0 ** rng.uniform(-6, 6)
    duals = size * rng.normal(size=known.duals.shape) + rng.integers(0, 2) * known.duals
    W = known.W + 10.0 ** rng.uniform(-9, 1) * rng.normal(size=known.W.shape)
    if rng.integers(2):
        # A matrix on the equations: often one that satisfies every hard row.
        W = np.asarray(ON_EQUATIONS(known.constraints, jnp.asarray(W)))
    solution = judged(name, known.constraints, W, duals)
    assert 0 <= solution.dual <= known.value * (1 + 1e-12)
    assert solution.primal >= known.value * (1 - 1e-9)
    assert solution.status != Status.INFEASIBLE


@pytest.mark.parametrize(("off", "status"), [(0.5e-9, Status.OPTIMAL), (2e-9, Status.NOT_CONVERGED)])
def test_an_equality_is_held_to_its_tolerance_from_both_sides(off, status):
    # One equality, ||W|| long: <A, W> = 1 and A of length 1.
    rows = svm.Constraints(jnp.asarray([[[0.6, 0.8]]]), jnp.ones((1, 1)), equal=jnp.ones((1, 1), bool))
    for sign in (-1, 1):
        W = np.array([[0.6], [0.8]]) * (1 + sign * off)
        assert judged("frobenius", rows, W, np.ones((1, 1))).status == status


@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_a_small_target_is_not_met_by_zero(objective):
    rows = svm.Constraints(
        jnp.asarray([[[0.6, 0.8]]]), jnp.ones((1, 1)), targets=jnp.full((1, 1), 1e-12), equal=jnp.ones((1, 1), bool)
    )
    assert_not_certified(judged(objective, rows, np.zeros((2, 1)), np.zeros((1, 1))))
    assert_not_certified(judged(objective, rows, np.array([[0.6], [0.8]]) * 1.01e-12, np.full((1, 1), 1e-12)))
    if ALL[objective].power == 1:
        found = judged(objective, rows, np.array([[0.6], [0.8]]) * 1e-12, np.ones((1, 1)))
        assert Status(int(found.status)) is Status.OPTIMAL


def test_soft_rows_are_never_a_proof_of_infeasibility(objective):
    constraints, proof = instances.pair_of_opposites()
    soft = svm.soft(constraints, 3.0)
    solution = judged(objective, soft, np.zeros((5, 5)), proof)
    assert_not_certified(solution)
    # They are a bound: no W has less shortfall than these rows together, at 3 a unit.
    np.testing.assert_allclose(solution.dual, 1.5 * proof.sum())
    # One of the two being soft takes the proof away, as any other hard row does not.
    one = np.full(proof.shape, np.inf)
    one[0, 1] = 3.0
    assert_not_certified(judged(objective, constraints._replace(penalty=jnp.asarray(one)), np.zeros((5, 5)), proof))
    other = np.where(proof > 0, np.inf, 3.0)
    found = judged(objective, constraints._replace(penalty=jnp.asarray(other)), np.zeros((5, 5)), proof + 0.1)
    assert_not_certified(found)
    noisy = np.where(proof > 0, proof, 0.1)
    found = judged(objective, constraints._replace(penalty=jnp.asarray(other)), np.zeros((5, 5)), noisy)
    assert Status(int(found.status)) is Status.INFEASIBLE
    assert_close(found.duals, proof / proof.sum())


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_equalities_of_either_sign_prove_infeasibility_and_inequalities_do_not(objective):
    # <A, W> = 1 and <2 A, W> = 1: a = (2, -1). As inequalities both are satisfied.
    D = jnp.asarray([[[1.0, 2.0], [2.0, 4.0]]])
    rows = svm.Constraints(D, jnp.ones((1, 1)), equal=jnp.ones((1, 2), bool))
    proof = np.array([[2.0, -1.0]])
    for a in (proof, 7 * proof):
        found = judged(objective, rows, np.zeros((2, 1)), a)
        assert Status(int(found.status)) is Status.INFEASIBLE
        assert_close(found.duals, proof / 3)
    assert_not_certified(judged(objective, rows, np.zeros((2, 1)), -proof))
    assert_not_certified(judged(objective, rows._replace(equal=None), np.zeros((2, 1)), proof))
    consistent = rows._replace(targets=jnp.asarray([[1.0, 2.0]]))
    assert_not_certified(judged(objective, consistent, np.zeros((2, 1)), proof))


@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_rows_of_target_zero_that_cancel_do_not_widen_a_proof(objective):
    # u^T W = 0 twice and v^T W >= 1, feasible: long multipliers of the first two must not hide the third.
    rows = svm.Constraints(
        jnp.asarray([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]),
        jnp.ones((3, 1)),
        targets=jnp.asarray([[0.0], [0.0], [1.0]]),
        equal=jnp.asarray([[True], [True], [False]]),
    )
    assert_not_certified(judged(objective, rows, np.zeros((2, 1)), np.array([[1e14], [-1e14], [1.0]])))


@pytest.mark.parametrize("field", ["differences", "queries", "targets", "penalty"])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_constraints_that_are_not_numbers_prove_nothing_under_jit(objective, field, number):
    known = constructed.mixed(0, ALL[objective])
    array = getattr(known.constraints, field)
    broken = known.constraints._replace(**{field: array.at[(0,) * array.ndim].set(number)})
    for W, a in ((known.W, known.duals), (0 * known.W, 0 * known.duals)):
        assert_not_certified(judged(objective, broken, W, a))
