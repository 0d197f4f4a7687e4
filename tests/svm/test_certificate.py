"""The certificate: it accepts what is optimal or infeasible, and nothing else, whoever proposes it."""

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
from tests.instances import NUMPY_NORMS, assert_close
from tests.svm import constructed

NORMS = {"frobenius": svm.frobenius, "nuclear": svm.nuclear}
KNOWN = {"frobenius": constructed.frobenius(0), "nuclear": constructed.nuclear(0)}
RNG = np.random.default_rng(0)


def certified(name, W, duals, tolerance=svm.DOUBLE, constraints=None) -> svm.Solution:
    candidate = Candidate(jnp.asarray(W), jnp.asarray(duals), jnp.asarray(7))
    return svm.certify(constraints or KNOWN[name].constraints, NORMS[name], candidate, tolerance)


@pytest.fixture(params=NORMS)
def norm(request):
    return request.param


def assert_not_certified(solution: svm.Solution) -> None:
    assert Status(int(solution.status)) is Status.NOT_CONVERGED
    for number in jax.tree.leaves(solution):
        assert not np.isnan(number).any()


@pytest.mark.parametrize(("w", "a"), [(1.0, 1.0), (3e-5, 1.0), (1.0, 4e7), (2e9, 1e-9)])
def test_a_known_solution_of_any_length_is_certified(norm, w, a):
    known = KNOWN[norm]
    solution = certified(norm, w * known.W, a * known.duals)
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close(solution.W, known.W, rtol=1e-11)
    assert_close(solution.duals, known.duals, rtol=1e-11)
    np.testing.assert_allclose([solution.primal, solution.dual], known.value, rtol=1e-11)
    assert abs(solution.gap) < 1e-11
    assert solution.violation < 1e-11
    assert solution.iterations == 7


def test_the_evidence_is_what_numpy_computes_from_the_numbers_returned(norm):
    # Of an unfinished candidate, where primal and dual value differ.
    known, (value, dual_value) = KNOWN[norm], NUMPY_NORMS[norm]
    solution = certified(norm, known.W + 0.02 * RNG.normal(size=known.W.shape), known.duals + 0.05)
    A, W, a = instances.matrices(known.constraints), np.asarray(solution.W), np.asarray(solution.duals)
    np.testing.assert_allclose(np.einsum("nmde,de->nm", A, W).min(), 1, rtol=1e-12)
    np.testing.assert_allclose(solution.primal, value(W), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum(), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum() / dual_value(np.einsum("nm,nmde->de", a, A)), rtol=1e-12)
    np.testing.assert_allclose(solution.gap, 1 - solution.dual / solution.primal, rtol=1e-10)
    assert solution.dual < known.value < solution.primal
    assert_not_certified(solution)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda W: W + 1e-3 * RNG.normal(size=W.shape),
        lambda W: -W,
        lambda W: 0 * W,
        lambda W: W.T,
        lambda W: W + 10 * np.eye(len(W)),
    ],
    ids=["nearby", "opposite", "zero", "transposed", "shifted"],
)
def test_a_wrong_matrix_is_not_certified_by_right_multipliers(norm, wrong):
    assert_not_certified(certified(norm, wrong(KNOWN[norm].W), KNOWN[norm].duals))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a + 1e-3 * RNG.uniform(size=a.shape),
        lambda a: np.ones_like(a),
        lambda a: 0 * a,
        lambda a: -a,
        lambda a: a[::-1],
    ],
    ids=["nearby", "uniform", "zero", "negative", "reordered"],
)
def test_the_right_matrix_is_not_certified_by_wrong_multipliers(norm, wrong):
    assert_not_certified(certified(norm, KNOWN[norm].W, wrong(KNOWN[norm].duals)))


def test_multipliers_of_either_sign_prove_nothing():
    # The least-norm W with all margins equal to 1 satisfies every constraint, and multipliers of either sign
    # would close its gap: those of the equalities.
    known = KNOWN["frobenius"]
    A = instances.matrices(known.constraints).reshape(9, 25)
    signed = np.linalg.solve(A @ A.T, np.ones(9))
    assert signed.min() < 0
    W = (signed @ A).reshape(5, 5)
    np.testing.assert_allclose(np.linalg.norm(W), signed.sum() / np.linalg.norm(signed @ A), rtol=1e-10)
    assert np.linalg.norm(W) > known.value * 1.01
    solution = certified("frobenius", W, signed.reshape(3, 3))
    assert_not_certified(solution)
    assert solution.dual <= known.value
    assert np.min(solution.duals) >= 0


def test_the_solution_of_one_norm_is_not_certified_for_the_other(norm):
    other = "nuclear" if norm == "frobenius" else "frobenius"
    solution = svm.solve(KNOWN[norm].constraints, norm=other)
    assert_not_certified(certified(norm, solution.W, solution.duals))


def test_a_matrix_that_violates_a_constraint_has_no_primal_value(norm):
    solution = certified(norm, -KNOWN[norm].W, KNOWN[norm].duals)
    assert solution.primal == solution.gap == np.inf
    assert solution.violation > 0


def test_the_gap_decides_at_its_tolerance(norm):
    # A matrix a little off: its gap is measured, and limits just above and just below it are tried.
    known = KNOWN[norm]
    W, a = known.W + 1e-6 * RNG.normal(size=known.W.shape), known.duals
    gap = float(certified(norm, W, a).gap)
    assert gap > 1e-8
    for share, status in ((1.01, Status.OPTIMAL), (0.99, Status.NOT_CONVERGED)):
        assert certified(norm, W, a, svm.Tolerance(gap=share * gap)).status == status


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["W", "duals"])
def test_a_candidate_with_nan_or_infinity_proves_nothing(norm, number, place):
    W, duals = KNOWN[norm].W.copy(), KNOWN[norm].duals.copy()
    (W if place == "W" else duals).flat[3] = number
    solution = certified(norm, W, duals)
    assert_not_certified(solution)
    np.testing.assert_array_equal(solution.W, 0)
    np.testing.assert_array_equal(solution.duals, 0)


def test_a_bad_lane_leaves_the_others_alone(norm):
    W, duals, constraints = KNOWN[norm].W, KNOWN[norm].duals, KNOWN[norm].constraints
    lanes = Candidate(jnp.stack([W, W * np.nan, -W]), jnp.stack([duals] * 3), jnp.zeros(3, int))
    solutions = jax.jit(jax.vmap(lambda one: svm.certify(constraints, NORMS[norm], one, svm.DOUBLE)))(lanes)
    assert list(solutions.status) == [Status.OPTIMAL, Status.NOT_CONVERGED, Status.NOT_CONVERGED]
    lone = certified(norm, W, duals)._replace(iterations=jnp.asarray(0))
    assert_close(instances.lane(solutions, 0)._replace(gap=0, violation=0), lone._replace(gap=0, violation=0))
    assert not any(np.isnan(leaf).any() for leaf in solutions)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(NORMS)), st.integers(0, 2**31 - 1))
def test_any_multipliers_bound_the_value_from_below_and_any_separator_from_above(name, seed):
    rng, known = np.random.default_rng(seed), KNOWN[name]
    W = known.W + rng.uniform(0, 3) * rng.normal(size=known.W.shape)
    duals = rng.exponential(size=known.duals.shape) * rng.integers(0, 2, size=known.duals.shape)
    solution = certified(name, W, duals)
    assert 0 <= solution.dual <= known.value * (1 + 1e-12) <= solution.primal * (1 + 2e-12)
    assert solution.status != Status.INFEASIBLE


@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_a_right_combination_to_zero_is_a_proof_of_infeasibility_and_a_wrong_one_is_not(norm, kind):
    constraints, duals = instances.INFEASIBLE[kind]()
    assert np.abs(np.einsum("nm,nmde->de", duals, instances.matrices(constraints))).max() < 1e-15
    zero = np.zeros((5, 5))
    solution = certified(norm, zero, 5 * duals, constraints=constraints)
    assert Status(int(solution.status)) is Status.INFEASIBLE
    assert_close(solution.duals, duals / duals.sum())
    assert solution.primal == solution.dual == solution.gap == np.inf
    np.testing.assert_array_equal(solution.W, zero)
    nearly = duals.copy()
    nearly[1, 2] += 1e-9
    assert_not_certified(certified(norm, zero, nearly, constraints=constraints))
    assert_not_certified(certified(norm, np.eye(5), 0 * duals, constraints=constraints))


def test_a_token_to_be_told_from_its_copy_is_infeasible(norm):
    differences = KNOWN[norm].constraints.differences.at[1, 1].set(0.0)
    constraints = KNOWN[norm].constraints._replace(differences=differences)
    proof = np.zeros((3, 3))
    proof[1, 1] = 1.0
    assert certified(norm, KNOWN[norm].W, proof, constraints=constraints).status == Status.INFEASIBLE
    assert_not_certified(certified(norm, KNOWN[norm].W, KNOWN[norm].duals, constraints=constraints))


def test_every_status_has_a_sentence():
    for status in Status:
        assert status.message.startswith(status.name.lower().replace("_", " "))


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
