"""The certificate: it accepts what is optimal or infeasible, and nothing else, whoever proposes it."""

from dataclasses import replace
from functools import partial

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
from tests.svm import problems
from tests.svm.problems import NORMS, full

ALL = {norm.name: norm for norm in (svm.frobenius, svm.nuclear, svm.squared(svm.frobenius), svm.squared(svm.nuclear))}
HARD = {"frobenius": problems.smooth(0), "nuclear": problems.nuclear(0)}
PLANTED = {
    **{(name, "hard"): known for name, known in HARD.items()},
    **{(name, seed): problems.mixed(seed, norm) for name, norm in ALL.items() for seed in range(8)},
}
RNG = np.random.default_rng(0)

# All rows have one shape and every field, so that each objective compiles once.
CERTIFY = {
    name: jax.jit(
        lambda rows, W, a, tolerance, norm=norm: svm.certify(rows, norm, Candidate(W, a, jnp.asarray(7)), tolerance),
        static_argnums=3,
    )
    for name, norm in ALL.items()
}
ON_EQUATIONS = jax.jit(lambda rows, W: cons.onto(rows, cons.equations(rows), W))


@pytest.fixture(params=ALL)
def objective(request):
    return request.param


@pytest.fixture(params=HARD)
def norm(request):
    return request.param


def judged(name, rows, W, a, tolerance=svm.DOUBLE) -> svm.Solution:
    solution = CERTIFY[name](full(rows, priced=True), jnp.asarray(W), jnp.asarray(a), tolerance)
    assert not any(np.isnan(leaf).any() for leaf in solution)
    return solution


def in_shape(rows, targets=None, equal=None) -> svm.Constraints:
    """Up to nine rows that ask something of the first two entries of W's first column, in the shared shape."""
    D, b, is_equal = np.zeros((9, 5)), np.ones(9), np.zeros(9, bool)
    k = len(rows)
    D[:k, :2] = rows
    b[:k], is_equal[:k] = 1.0 if targets is None else targets, False if equal is None else equal
    shape, present = (3, 3), np.arange(9) < k
    arrays = D.reshape(3, 3, 5), np.tile(np.eye(5)[0], (3, 1)), b.reshape(shape), is_equal.reshape(shape)
    return svm.Constraints(*map(jnp.asarray, (*arrays, present.reshape(shape))))


def column(*entries) -> np.ndarray:
    W = np.zeros((5, 5))
    W[: len(entries), 0] = entries
    return W


def multipliers(*entries) -> np.ndarray:
    return np.asarray([*entries, *[0.0] * (9 - len(entries))]).reshape(3, 3)


@pytest.mark.parametrize(
    ("case", "w", "a"),
    [
        *((("hard", name), w, a) for name in HARD for w, a in ((1.0, 1.0), (3e-5, 1.0), (1.0, 4e7), (2e9, 1e-9))),
        *(((seed, name), 1.0, 1.0) for name in ALL for seed in range(4)),
    ],
)
def test_a_known_solution_is_certified_and_one_of_hard_rows_at_any_length(case, w, a):
    kind, name = case
    known = PLANTED[name, kind]
    solution = judged(name, known.constraints, w * known.W, a * known.duals)
    assert Status(int(solution.status)) is Status.OPTIMAL
    assert_close((solution.W, solution.duals), (jnp.asarray(known.W), jnp.asarray(known.duals)), rtol=1e-11)
    np.testing.assert_allclose([solution.primal, solution.dual], known.value, rtol=1e-11)
    assert abs(solution.gap) < 1e-11
    assert solution.violation < 1e-11
    assert solution.iterations == 7


def test_the_evidence_is_what_numpy_computes_from_the_numbers_returned(norm):
    # Of an unfinished candidate, where primal and dual value differ.
    known, (value, dual_value) = HARD[norm], NORMS[norm]
    wrong = known.W + 0.02 * RNG.normal(size=known.W.shape), known.duals + 0.05
    solution = judged(norm, known.constraints, *wrong)
    A, W, a = instances.matrices(known.constraints), np.asarray(solution.W), np.asarray(solution.duals)
    np.testing.assert_allclose(np.einsum("nmde,de->nm", A, W).min(), 1, rtol=1e-12)
    np.testing.assert_allclose(solution.primal, value(W), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum(), rtol=1e-12)
    np.testing.assert_allclose(solution.dual, a.sum() / dual_value(np.einsum("nm,nmde->de", a, A)), rtol=1e-12)
    np.testing.assert_allclose(solution.gap, 1 - solution.dual / solution.primal, rtol=1e-10)
    assert solution.dual < known.value < solution.primal
    assert_not_certified(solution)


WRONG = {
    "nearby": lambda W: W + 1e-3 * RNG.normal(size=W.shape),
    "opposite": lambda W: -W,
    "zero": lambda W: 0 * W,
    "transposed": lambda W: W.T,
    "shifted": lambda W: W + 10 * np.eye(len(W)),
    # Where all rows are hard the length of W is free.
    "very near": lambda W: W + 1e-6 * RNG.normal(size=W.shape),
    "longer": lambda W: W * (1 + 1e-6),
    "shorter": lambda W: W * (1 - 1e-6),
}


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [(name, "hard", what) for name in HARD for what in WRONG if what not in ("very near", "longer", "shorter")]
    + [(name, 0, what) for name in ALL for what in WRONG],
)
def test_a_wrong_matrix_is_not_certified_by_right_multipliers(name, kind, what):
    known = PLANTED[name, kind]
    W = WRONG[what](known.W)
    solution = judged(name, known.constraints, W, known.duals)
    assert_not_certified(solution)
    if kind != "hard" or not cons.worst_margin(known.constraints, jnp.asarray(W)) > 0:
        # It violates a hard row, whatever its objective.
        assert solution.violation > 1e-9
        assert solution.primal == solution.gap == np.inf


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
    known = HARD[norm]
    assert_not_certified(judged(norm, known.constraints, known.W, wrong(known.duals)))


@pytest.mark.parametrize("kind", ["tight", "equal", "inside"])
def test_wrong_multipliers_of_rows_of_any_kind_are_not_certified(objective, kind):
    known = PLANTED[objective, 0]
    of = jax.tree.map(np.asarray, cons.rows(known.constraints))
    where = {"tight": of.hard & ~of.equal, "equal": of.equal, "inside": of.present & ~of.hard}[kind]
    wrong = np.where(where & (known.duals != 0), known.duals * 1.01, known.duals)
    solution = judged(objective, known.constraints, known.W, wrong)
    assert_not_certified(solution)
    assert solution.dual < known.value


def test_multipliers_of_either_sign_prove_nothing():
    # The least-norm W with all margins equal to 1 satisfies every constraint, and multipliers of either sign
    # would close its gap: those of the equalities.
    known = HARD["frobenius"]
    A = instances.matrices(known.constraints).reshape(9, 25)
    signed = np.linalg.solve(A @ A.T, np.ones(9))
    assert signed.min() < 0
    W = (signed @ A).reshape(5, 5)
    np.testing.assert_allclose(np.linalg.norm(W), signed.sum() / np.linalg.norm(signed @ A), rtol=1e-10)
    assert np.linalg.norm(W) > known.value * 1.01
    solution = judged("frobenius", known.constraints, W, signed.reshape(3, 3))
    assert_not_certified(solution)
    assert solution.dual <= known.value
    assert np.min(solution.duals) >= 0


def test_multipliers_outside_their_box_are_put_back(objective):
    known = PLANTED[objective, 1]
    of = jax.tree.map(np.asarray, cons.rows(known.constraints))
    wild = np.where(of.present, known.duals, 5.0) + np.where(of.present & ~of.hard, 100.0, 0.0)
    solution = judged(objective, known.constraints, known.W, wild)
    assert np.all(solution.duals <= of.upper * (1 + 1e-12))
    assert np.all(solution.duals >= of.lower * (1 + 1e-12))
    np.testing.assert_array_equal(solution.duals[~of.present], 0)
    assert solution.dual <= known.value * (1 + 1e-12)


def test_the_solution_of_one_norm_is_not_certified_for_the_other(norm):
    other = HARD["nuclear" if norm == "frobenius" else "frobenius"]
    assert_not_certified(judged(norm, other.constraints, other.W, other.duals))


def test_the_gap_decides_at_its_tolerance(norm):
    # A matrix a little off, and then less and less: the gap passes 1e-8 in steps of a fifth at most.
    known, off = HARD[norm], RNG.normal(size=HARD[norm].W.shape)
    found = [
        judged(norm, known.constraints, known.W + size * off, known.duals) for size in 10 ** np.arange(-4, -10, -0.04)
    ]
    gaps, optimal = np.array([one.gap for one in found]), np.array([one.status == Status.OPTIMAL for one in found])
    np.testing.assert_array_equal(optimal, gaps <= svm.DOUBLE.gap)
    assert gaps[~optimal].min() < 1.3e-8
    assert gaps[optimal].max() > 0.7e-8


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["W", "duals"])
def test_a_candidate_with_nan_or_infinity_proves_nothing(norm, number, where):
    W, duals = HARD[norm].W.copy(), HARD[norm].duals.copy()
    (W if where == "W" else duals).flat[3] = number
    solution = judged(norm, HARD[norm].constraints, W, duals)
    assert_not_certified(solution)
    np.testing.assert_array_equal(solution.W, 0)
    np.testing.assert_array_equal(solution.duals, 0)


@pytest.mark.parametrize("field", ["differences", "queries", "targets", "penalty"])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_constraints_that_are_not_numbers_prove_nothing_under_jit(objective, field, number):
    known = PLANTED[objective, 0]
    array = getattr(known.constraints, field)
    broken = known.constraints._replace(**{field: array.at[(0,) * array.ndim].set(number)})
    for W, a in ((known.W, known.duals), (0 * known.W, 0 * known.duals)):
        solution = CERTIFY[objective](broken, jnp.asarray(W), jnp.asarray(a), svm.DOUBLE)
        assert_not_certified(solution)


def test_a_norm_that_could_not_be_computed_proves_nothing():
    """As where a decomposition of LAPACK's fails, which gives NaN: `certify` takes one value and three dual norms."""
    known, calls = HARD["frobenius"], []
    candidate = Candidate(jnp.asarray(known.W), jnp.asarray(known.duals), jnp.asarray(0))

    @jax.jit
    @jax.vmap
    def certified(failing):
        def lost(part, W):
            calls.append(part)
            return jnp.where(failing == len(calls), jnp.nan, getattr(svm.frobenius, part)(W))

        parts = {part: partial(lost, part) for part in ("value", "dual")}
        return svm.certify(known.constraints, replace(svm.frobenius, name="failing", **parts), candidate, svm.DOUBLE)

    # The last one, where no call fails, is optimal.
    solutions = jax.tree.map(np.asarray, certified(np.arange(1, 6)))
    assert sorted(calls) == ["dual", "dual", "dual", "value"]
    for i in range(4):
        assert_not_certified(instances.lane(solutions, i))
    assert Status(int(solutions.status[4])) is Status.OPTIMAL


@pytest.mark.slow
def test_a_bad_lane_leaves_the_others_alone(norm):
    known = HARD[norm]
    W, rows = jnp.asarray(known.W), full(known.constraints, priced=True)
    lanes = Candidate(jnp.stack([W, W * np.nan, -W]), jnp.stack([jnp.asarray(known.duals)] * 3), jnp.full(3, 7))
    solutions = jax.jit(jax.vmap(lambda one: svm.certify(rows, ALL[norm], one, svm.DOUBLE)))(lanes)
    assert list(solutions.status) == [Status.OPTIMAL, Status.NOT_CONVERGED, Status.NOT_CONVERGED]
    lone = judged(norm, known.constraints, known.W, known.duals)
    assert_close(instances.lane(solutions, 0)._replace(gap=0, violation=0), lone._replace(gap=0, violation=0))
    assert not any(np.isnan(leaf).any() for leaf in solutions)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(ALL)), st.integers(0, 2**31 - 1))
def test_any_multipliers_bound_the_value_from_below_and_any_matrix_from_above(name, seed):
    rng = np.random.default_rng(seed)
    known = PLANTED[name, int(rng.integers(8))]
    duals = 10.0 ** rng.uniform(-6, 6) * rng.normal(size=known.duals.shape) + rng.integers(0, 2) * known.duals
    W = known.W + 10.0 ** rng.uniform(-9, 1) * rng.normal(size=known.W.shape)
    if rng.integers(2):
        # A matrix on the equations: often one that satisfies every hard row.
        W = np.asarray(ON_EQUATIONS(known.constraints, jnp.asarray(W)))
    solution = judged(name, known.constraints, W, duals)
    assert 0 <= solution.dual <= known.value * (1 + 1e-12)
    assert solution.primal >= known.value * (1 - 1e-9)
    assert solution.status != Status.INFEASIBLE
    if name in HARD:
        known = HARD[name]
        W = known.W + rng.uniform(0, 3) * rng.normal(size=known.W.shape)
        duals = rng.exponential(size=known.duals.shape) * rng.integers(0, 2, size=known.duals.shape)
        solution = judged(name, known.constraints, W, duals)
        assert 0 <= solution.dual <= known.value * (1 + 1e-12) <= solution.primal * (1 + 2e-12)
        assert solution.status != Status.INFEASIBLE


@pytest.mark.parametrize("kind", instances.INFEASIBLE)
def test_a_right_combination_to_zero_is_a_proof_of_infeasibility_and_a_wrong_one_is_not(norm, kind):
    rows, duals = instances.INFEASIBLE[kind]()
    assert np.abs(np.einsum("nm,nmde->de", duals, instances.matrices(rows))).max() < 1e-15
    zero = np.zeros((5, 5))
    solution = judged(norm, rows, zero, 5 * duals)
    assert Status(int(solution.status)) is Status.INFEASIBLE
    assert_close(solution.duals, duals / duals.sum())
    assert solution.primal == solution.gap == np.inf
    # Rounded tokens are combined to zero up to rounding: so far is a W excluded, and no farther.
    assert 1e13 < solution.dual < np.inf
    np.testing.assert_array_equal(solution.W, zero)
    nearly = duals.copy()
    nearly[1, 2] += 1e-9
    assert_not_certified(judged(norm, rows, zero, nearly))
    assert_not_certified(judged(norm, rows, np.eye(5), 0 * duals))


def test_a_token_to_be_told_from_its_copy_is_infeasible(norm):
    known = HARD[norm]
    rows = known.constraints._replace(differences=known.constraints.differences.at[1, 1].set(0.0))
    proof = np.zeros((3, 3))
    proof[1, 1] = 1.0
    assert judged(norm, rows, known.W, proof).status == Status.INFEASIBLE
    assert_not_certified(judged(norm, rows, known.W, known.duals))


@pytest.mark.parametrize(("off", "status"), [(0.5e-9, Status.OPTIMAL), (2e-9, Status.NOT_CONVERGED)])
def test_an_equality_is_held_to_its_tolerance_from_both_sides(off, status):
    # One equality, ||W|| long: <A, W> = 1 and A of length 1.
    rows = in_shape([[0.6, 0.8]], equal=[True])
    for sign in (-1, 1):
        W = column(0.6, 0.8) * (1 + sign * off)
        assert judged("frobenius", rows, W, multipliers(1)).status == status


@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_a_small_target_is_not_met_by_zero(objective):
    rows = in_shape([[0.6, 0.8]], [1e-12], equal=[True])
    assert_not_certified(judged(objective, rows, column(0, 0), multipliers(0)))
    assert_not_certified(judged(objective, rows, column(0.6, 0.8) * 1.01e-12, multipliers(1e-12)))
    if ALL[objective].power == 1:
        found = judged(objective, rows, column(0.6, 0.8) * 1e-12, multipliers(1))
        assert Status(int(found.status)) is Status.OPTIMAL


def test_soft_rows_are_never_a_proof_of_infeasibility(objective):
    rows, proof = instances.pair_of_opposites()
    solution = judged(objective, svm.soft(rows, 3.0), np.zeros((5, 5)), proof)
    assert_not_certified(solution)
    # They are a bound: no W has less shortfall than these rows together, at 3 a unit.
    np.testing.assert_allclose(solution.dual, 1.5 * proof.sum())
    # One of the two being soft takes the proof away, as any other hard row does not.
    one = np.full(proof.shape, np.inf)
    one[0, 1] = 3.0
    assert_not_certified(judged(objective, rows._replace(penalty=jnp.asarray(one)), np.zeros((5, 5)), proof))
    other = rows._replace(penalty=jnp.asarray(np.where(proof > 0, np.inf, 3.0)))
    assert_not_certified(judged(objective, other, np.zeros((5, 5)), proof + 0.1))
    found = judged(objective, other, np.zeros((5, 5)), np.where(proof > 0, proof, 0.1))
    assert Status(int(found.status)) is Status.INFEASIBLE
    assert_close(found.duals, proof / proof.sum())


@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_equalities_of_either_sign_prove_infeasibility_and_inequalities_do_not(objective):
    # <A, W> = 1 and <2 A, W> = 1: a = (2, -1). As inequalities both are satisfied.
    contradictory, zero = [[1.0, 2.0], [2.0, 4.0]], column(0, 0)
    rows, proof = in_shape(contradictory, equal=[True, True]), multipliers(2, -1)
    for a in (proof, 7 * proof):
        found = judged(objective, rows, zero, a)
        assert Status(int(found.status)) is Status.INFEASIBLE
        assert_close(found.duals, proof / 3)
    assert_not_certified(judged(objective, rows, zero, -proof))
    assert_not_certified(judged(objective, in_shape(contradictory), zero, proof))
    assert_not_certified(judged(objective, in_shape(contradictory, [1.0, 2.0], [True, True]), zero, proof))


@pytest.mark.parametrize("objective", ["frobenius", "squared nuclear"])
def test_rows_of_target_zero_that_cancel_do_not_widen_a_proof(objective):
    # u^T W = 0 twice and v^T W >= 1, feasible: long multipliers of the first two must not hide the third.
    rows = in_shape([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, 0.0, 1.0], [True, True, False])
    assert_not_certified(judged(objective, rows, column(0, 0), multipliers(1e14, -1e14, 1.0)))


def test_every_status_has_a_sentence():
    for status in Status:
        assert status.message.startswith(status.name.lower().replace("_", " "))
